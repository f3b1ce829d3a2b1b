/**
 * Writes trust.json: shows what is pinned, asks, and loses nothing that is there (contract §7; R9).
 */
import { basename, dirname } from 'node:path'
import { mergePins, type ProfilePins, parseTrust, type Trust } from '#client/trust/trust-file'
import { instant } from '#protocol/candidate'
import { UsageError } from '#protocol/errors'
import { makeDurableDir, publishFile, writeAll } from '#storage/durable'
import { confirm, readInput } from './session/inputs.js'
import type { Session } from './session/session.js'
import type { Context } from './terminal/context.js'
import { showDryRun } from './terminal/dry-run.js'
import { rows, together } from './terminal/output.js'
import { visible } from './terminal/render.js'

/** `fromOutside`: a person has to agree. `onlyAdds`: what would change a pin is refused. */
interface Writing {
  readonly fromOutside?: boolean
  readonly onlyAdds?: boolean
  readonly isDryRun?: boolean | undefined
}

/**
 * Asks where pins come from outside, change what is pinned, or replace a damaged file, which is
 * kept aside.
 * UsageError `trust_changed` where another process wrote the file meanwhile.
 */
export async function write(
  context: Context,
  session: Session,
  more: Trust,
  writing: Writing,
): Promise<void> {
  const { output } = context
  const path = session.settings.trust.value
  const current = await bytesOf(context, path)
  const found = current === undefined ? undefined : pinsIn(current, path)
  const damage = found instanceof UsageError ? found : undefined
  const before = found instanceof UsageError ? undefined : found
  const { trust, changed, added } =
    before === undefined ? { trust: more, changed: [], added: [] } : mergePins(before, more)
  if (writing.onlyAdds === true) refuseChanges(changed)
  const isNews = before === undefined || changed.length + added.length > 0
  const kept = `${path}.damaged`
  const replacing =
    damage && `${path} is damaged: it is replaced and kept as ${kept}. ${damage.detail}`
  const shown = together([
    rows(pinRows(before === undefined ? trust : more)),
    replacing,
    ...changed.map((line) => `changes ${line}`),
    ...added.map((line) => `adds ${line}`),
  ])(output)
  const replaces = damage !== undefined || changed.length > 0
  if (writing.isDryRun === true) {
    if (output.mode === 'human') output.warn(shown)
    const verb = replaces ? 'replace' : before === undefined ? 'write' : 'add to'
    const would = isNews ? `${verb} ${path}` : `leave ${path} unchanged`
    return showDryRun(context, would, { path, replaces, ...trust, changed, added })
  }
  if (isNews && (writing.fromOutside === true || replaces)) {
    output.warn(shown)
    const news = before === undefined ? 'Trust these contracts' : 'Add these pins'
    const change = damage ? 'Replace the damaged file by these contracts' : 'Change what is pinned'
    const question = `${replaces ? change : news} (${path})?`
    await confirm(context, visible(question), session.settings.yes)
  }
  if (isNews) {
    if (!same(await bytesOf(context, path), current)) throw trustChanged(path)
    if (damage !== undefined && current !== undefined) await publish(context, kept, current)
    const text = `${JSON.stringify(trust, undefined, 2)}\n`
    await publish(context, path, new TextEncoder().encode(text))
  }
  const done = isNews ? 'pinned in' : 'everything is already pinned in'
  output.show('trust', { path, ...trust, changed, added }, [
    `${done} ${path}; verify it with \`proposer trust verify --rpc-url <url>\``,
  ])
}

/** Adding to the pins must not change one, whoever has agreed (R9). */
export function refuseChanges(changed: readonly string[]): void {
  if (changed.length === 0) return
  throw new UsageError(
    'pins_would_change',
    `trust pin only adds pins, and this would change some: ${changed.join('; ')}`,
    'trust it only if an independent source confirms it; `proposer trust init` with the same question, or --from <file>, changes pins',
  )
}

const trustChanged = (path: string) =>
  new UsageError(
    'trust_changed',
    `${path} was changed by another process meanwhile; nothing was written`,
    'rerun the command: it adds to the present pins',
  )

const bytesOf = async (context: Context, path: string): Promise<Uint8Array | undefined> =>
  (await context.files.exists(path)) ? readInput(context, path) : undefined

const same = (one: Uint8Array | undefined, other: Uint8Array | undefined): boolean =>
  one === undefined || other === undefined ? one === other : Buffer.compare(one, other) === 0

function pinsIn(bytes: Uint8Array, path: string): Trust | UsageError {
  try {
    return parseTrust(firstJson(new TextDecoder().decode(bytes), path), path)
  } catch (error) {
    if (error instanceof UsageError) return error
    throw error
  }
}

async function publish(context: Context, path: string, bytes: Uint8Array) {
  const folder = dirname(path)
  await makeDurableDir(context.files, folder)
  await publishFile(context.files, folder, basename(path), (handle) => writeAll(handle, bytes))
}

export function firstJson(text: string, path: string): unknown {
  for (const candidate of [text, ...text.split('\n').filter((line) => line.startsWith('{'))]) {
    try {
      return JSON.parse(candidate)
    } catch {
      // not this line; where none is JSON the error below says so
    }
  }
  throw new UsageError(
    'input_not_json',
    `${path === '-' ? 'stdin' : path} is not JSON`,
    'give a trust.json, or what `proposer serve --dev --json` or `proposer devchain --json` printed',
  )
}

export const pinRows = (trust: ProfilePins): readonly (readonly [string, string])[] => [
  ['chain', String(trust.chain_id)],
  ['permit2', trust.permit2],
  ['signed proposer', trust.signed_proposer ?? 'missing: no public source lists it'],
  ...trust.oracles.map((address) => ['oracle', address] as const),
  ...trust.requesters.map(({ address, kind }) => ['requester', `${address} (${kind})`] as const),
  ...trust.tokens.map((address) => ['token', address] as const),
  ...Object.entries(trust.implementations ?? {}).map(([address, { implementation }]) => {
    const code = implementation === address ? 'its own' : implementation
    return ['code', `${address} runs ${code}`] as const
  }),
  ...Object.entries(trust.receipt_keys ?? {}).map(([kid, { exp }]) => {
    const until = exp === undefined ? '' : ` until ${instant(exp * 1_000)}`
    return ['receipt key', `${kid}${until}`] as const
  }),
  ...Object.entries(trust.slugs).map(([slug, id]) => ['slug', `${slug} ${id}`] as const),
]
