/**
 * Damaged input files of every kind: a sentence and a hint with exit 2, never a stack or a bug, and
 * nothing of a secret shown (R5, R20, T9).
 */
import fc from 'fast-check'
import type { Fetch } from '#ports'
import { version } from '#protocol/words'
import { figures, runs } from '#support/campaign'
import { run } from '#support/cli'
import { temporaryFolder } from '#support/folders'
import { fileDraws, kinds, putBack, putDamaged, soundHome } from '#support/fuzz/input-files'
import { acting } from '#support/hostile/mutants'

const gateway: Fetch = async (input) => {
  const address = /eligibility\/(0x[0-9a-f]{40})$/.exec(String(input))?.[1]
  const [status, body] = address
    ? [200, { version, address, eligible: false }]
    : [403, { error: { code: 'proposer_not_eligible', detail: 'not on the allowlist' } }]
  return Response.json(body, {
    status,
  })
}

/**
 * The longest part of a secret that any output may share with it by chance: a run of so many
 * characters is none.
 */
const sharedLength = 12

function secretShown(secret: string, shown: string): string | undefined {
  for (const word of secret.match(/[0-9A-Za-z]{12,}/g) ?? []) {
    for (let at = 0; at + sharedLength <= word.length && at < 2_000; at += 1) {
      const part = word.slice(at, at + sharedLength)
      // The account's own address is in its keystore, and names and shape words are no secret.
      if (!/\d/.test(part) || new Set(part).size < 2 || part.startsWith('11111')) continue
      if (shown.includes(part)) return part
    }
  }
  return undefined
}

test('R5, R20, T9, contract §6: a damaged file ends in exit 2 or is taken as it is, with a sentence and a hint, and no secret in it is shown', async () => {
  const home = temporaryFolder()
  const codes = new Map<string, number>()
  let files = 0
  await soundHome(home)
  await fc.assert(
    fc.asyncProperty(fileDraws, fc.nat(2), async (draw, mode) => {
      const { kind, text } = await putDamaged(home, draw)
      const target = ['eligibility', 'submit'].includes(kind.argv[0] ?? '')
        ? ['--gateway', 'http://127.0.0.1:9']
        : []
      const ran = await run(
        home,
        [...kind.argv, ...target, ...(mode === 1 ? ['--json'] : []), '--timeout', '1'],
        {
          fetch: gateway,
          ...(kind.env === undefined ? {} : { env: kind.env }),
        },
      )
      // Before anything is judged: a run that shrinks must not meet the file of the one before
      // it.
      await putBack(home, kind)
      files += 1
      const shown = ran.stdout + ran.stderr
      const where = `${kind.name}, ${JSON.stringify(draw)}: exit ${ran.code}: ${JSON.stringify(shown.slice(0, 600))}`
      if (ran.code !== 0 && ran.code !== 2 && !kind.exits?.includes(ran.code))
        throw new Error(where)
      if (/\n\s+at .*:\d+/.test(shown) || shown.includes('internal_error'))
        throw new Error(`a stack: ${where}`)
      if (acting.test(shown)) throw new Error(`R20: ${where}`)
      if (ran.code !== 0 && mode !== 1 && !/\S.*\n(.*\n)*hint: \S/.test(ran.stderr))
        throw new Error(`no sentence with a hint: ${where}`)
      if (ran.code !== 0 && mode === 1) {
        const { error } = JSON.parse(ran.stderr.trim().split('\n').at(-1) ?? '') as {
          error: { exit_code: number; detail: string }
        }
        if (error.exit_code !== ran.code || error.detail.length < 10) throw new Error(where)
      }
      const secret = kind.isSecret ? secretShown(text, shown) : undefined
      if (secret !== undefined) throw new Error(`R5: ${secret} is shown: ${where}`)
      codes.set(`${kind.name} ${ran.code}`, (codes.get(`${kind.name} ${ran.code}`) ?? 0) + 1)
    }),
    runs(2_400),
  )
  for (const { name } of kinds)
    expect(codes.get(`${name} 2`), name).toBeGreaterThan(files / kinds.length / 20)
  figures('fuzz-files', { files, kinds: kinds.length })
})
