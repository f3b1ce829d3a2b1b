import { ProposerError } from '#protocol/errors'

export async function refusal(work: Promise<unknown> | undefined): Promise<ProposerError> {
  const failure: unknown = await work?.then(
    () => new Error('it was taken'),
    (error: unknown) => error,
  )
  if (failure instanceof ProposerError) return failure
  throw failure
}
