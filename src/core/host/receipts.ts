/**
 * The key that a gateway signs receipts with (contract §9): the private one in a file of each
 * gateway, the public ones in the store, so that all gateways on one store sign with one key.
 */
import { resolve } from 'node:path'
import type { Ledger, LedgerFacts } from '#gateway/ledger/ledger'
import {
  newReceiptKey,
  type PrivateReceiptKey,
  readReceiptKeys,
  writeReceiptKeys,
} from '#io/receipt-keys'
import type { Machine } from '#ports'
import { UsageError } from '#protocol/errors'
import type { ReceiptKey } from '#protocol/receipt'
import { type LoadedConfig, pastedCommand } from './config-file.js'

export const receiptKeyFile = ({ config, folder }: Pick<LoadedConfig, 'config' | 'folder'>) =>
  config.receipts && resolve(folder, config.receipts.key_file)

type Keys = LedgerFacts['receiptKeys']

const currentKey = (keys: Keys): ReceiptKey | undefined =>
  [...keys.values()].find(({ exp }) => exp === undefined)

function usableKey(keys: Keys, held: readonly PrivateReceiptKey[], nowSeconds: number) {
  const current = currentKey(keys)
  const valid = [...keys.values()].filter(({ exp }) => exp !== undefined && nowSeconds < exp)
  const kids = [current?.kid, ...valid.reverse().map(({ kid }) => kid)]
  for (const kid of kids) {
    const found = held.find((key) => key.kid === kid)
    if (found !== undefined) return found
  }
  return undefined
}

/** `kid`: of the key that signs. */
export async function heldReceiptKeys(
  { files, hash, clock }: Pick<Machine, 'files' | 'hash' | 'clock'>,
  loaded: LoadedConfig,
  keys: Keys,
) {
  const path = receiptKeyFile(loaded)
  if (path === undefined) return undefined
  const held = (await files.exists(path)) ? await readReceiptKeys(hash, path) : []
  const current = currentKey(keys)
  if (current === undefined) return { path, held, kid: held[0]?.kid }
  const usable = usableKey(keys, held, Math.floor(clock.nowMs() / 1_000))
  if (usable !== undefined) return { path, held, kid: usable.kid }
  throw new UsageError(
    'receipt_key_differs',
    `the receipts of this store are signed with the key ${current.kid}, which is not in ${path}`,
    `copy the file from another gateway of the store or from a backup; or make a new key with ${pastedCommand(loaded)('receipts rotate')}`,
  )
}

export async function openReceipts(
  machine: Pick<Machine, 'files' | 'hash' | 'clock' | 'random'>,
  loaded: LoadedConfig,
  ledger: Ledger,
) {
  const { files, hash, clock } = machine
  const known = await heldReceiptKeys(machine, loaded, ledger.receiptKeys)
  if (known === undefined) return undefined
  const { path } = known
  if (known.held.length === 0) await writeReceiptKeys(files, path, [newReceiptKey(machine)])
  let held = await readReceiptKeys(hash, path)
  const nowSeconds = () => Math.floor(clock.nowMs() / 1_000)
  await ledger.catchUp?.()
  const [newest] = held
  if (currentKey(ledger.receiptKeys) === undefined && newest !== undefined) {
    const { kid, x } = newest
    const key = { kid, x, nbf: nowSeconds() }
    await ledger.commit([{ kind: 'receipt.key', key, reason: 'the first key of this store' }])
    await ledger.catchUp?.()
    // Two gateways that open a new store at once: the log says whose key it is.
    if (currentKey(ledger.receiptKeys)?.kid !== kid) {
      const ended = { ...key, exp: nowSeconds() }
      await ledger.commit([{ kind: 'receipt.key', key: ended, reason: 'another key was first' }])
    }
  }
  await heldReceiptKeys(machine, loaded, ledger.receiptKeys)
  const usable = (seconds: number) => usableKey(ledger.receiptKeys, held, seconds)
  let failed: string | undefined
  let isReading = false
  return {
    current: usable,
    fault: () =>
      usable(nowSeconds()) === undefined
        ? `receipts cannot be signed: ${failed ?? 'the key file has no key of the store'}`
        : undefined,
    look() {
      const wanted = currentKey(ledger.receiptKeys)?.kid
      if (wanted === undefined || isReading || held.some(({ kid }) => kid === wanted)) return
      isReading = true
      const read = async () => {
        try {
          held = await readReceiptKeys(hash, path)
          failed = undefined
        } catch (error) {
          // The key that is held signs until its end; then `fault` tells why.
          failed = error instanceof UsageError ? error.code : 'the key file cannot be read'
        } finally {
          isReading = false
        }
      }
      void read()
    },
  }
}
