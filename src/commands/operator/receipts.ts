/** `operator receipts`: the keys that answers are signed with (contract §9). */
import { receiptKeyFile } from '#host/receipts'
import { newReceiptKey, readReceiptKeys, writeReceiptKeys } from '#io/receipt-keys'
import { instant } from '#protocol/candidate'
import { durationMs } from '#protocol/duration'
import { UsageError } from '#protocol/errors'
import { jwkOf } from '#protocol/receipt'
import { dryRunFlag } from '../terminal/dry-run.js'
import { act, look, type Site, saidFlags, saidOf, siteVerb } from './access.js'

export const receiptKeysVerb = siteVerb({
  name: 'list',
  about: 'list the public keys of the store, ended ones too',
  examples: ['operator receipts list --json'],
  async run(context, site) {
    const keys = await look(context, site, [], async ({ ledger }) => [
      ...ledger.receiptKeys.values(),
    ])
    context.output.show('operator-receipts', { keys: keys.map(jwkOf) }, [
      keys.length === 0 &&
        'the store has no receipt key: `serve` makes one where gateway.json has receipts',
      ...keys.map(({ kid, nbf = 0, exp }) => {
        const end = exp === undefined ? 'signs now' : `ends ${instant(exp * 1_000)}`
        return `${kid} from ${instant(nbf * 1_000)}, ${end}`
      }),
    ])
  },
})

/** Gateways on one store get the new file one after the other. */
const defaultOverlap = '24h'

export const rotateVerb = siteVerb({
  name: 'rotate',
  about: 'make a new receipt key; the one before stays listed, with the time it ends',
  flags: {
    '--overlap <duration>': {
      about: `for how long the key before may still sign; 0 where it was stolen; default: ${defaultOverlap}`,
      parse: overlapOf,
    },
    ...saidFlags,
    ...dryRunFlag,
  },
  help: 'The new key goes into the key file, before the ones that are there. A gateway that runs takes it at once.\nCopy the file to every other gateway on the same store before the overlap ends.',
  examples: ['operator receipts rotate --reason "yearly"'],
  async run(context, site, flags) {
    const { overlap = overlapOf(defaultOverlap) } = flags
    const path = keyFileOf(site)
    const next = newReceiptKey(context)
    const { kid, x } = next
    const body = { kid, x, overlap_seconds: overlap, ...saidOf(context, flags) }
    if (!site.isDryRun) {
      const held = (await context.files.exists(path))
        ? await readReceiptKeys(context.hash, path)
        : []
      // First the file: a store that names a key which nobody holds would stop the gateway.
      await writeReceiptKeys(context.files, path, [next, ...held].slice(0, mostKept))
    }
    const acted = await act(context, site, 'receipts/rotate', body)
    if (acted === undefined) return
    const { result, through } = acted
    context.output.show('operator-act', { ...result, through, key_file: path }, [
      `answers are signed with the key ${kid} now`,
      ...result.notes,
      `${path} holds it; copy it to every other gateway on this store`,
    ])
  },
})

/** A file of secrets has an upper bound, and older keys have ended. */
const mostKept = 4

function keyFileOf({ loaded }: Site): string {
  const path = receiptKeyFile(loaded)
  if (path !== undefined) return path
  throw new UsageError('no_receipts', `receipts are not configured in ${loaded.path}`, {
    hint: 'add "receipts": {"key_file": "./receipt-key.json"} to gateway.json; the next `proposer serve` makes the key',
  })
}

function overlapOf(text: string): number {
  const ms = durationMs(text)
  if (ms !== undefined && ms <= 365 * 86_400_000) return Math.ceil(ms / 1_000)
  throw new UsageError(
    'bad_duration',
    `--overlap ${text.slice(0, 80)} is not a duration of at most 365 days`,
    { hint: 'give a duration such as --overlap 24h, or --overlap 0' },
  )
}
