/**
 * A sound file of every kind that a user or operator hands to the program, and the command that
 * reads it.
 */
import { chmod, mkdir, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import fc from 'fast-check'
import { priceOf } from '#protocol/proposal'
import { argvOf } from '../argv.js'
import { chainSectionOf, testContracts } from '../fake-view.js'
import { pins, questionContext } from '../scripted-gateway.js'
import { type Edit, edited, editedBytes, editedText, editsUpTo, tokens } from './mutate.js'

export const key = `0x${'1f'.repeat(31)}2e`
export const question = questionContext('Will it hold?')
const identifier = question.question_id
const address = `0x${'1'.repeat(40)}`

export interface Kind {
  readonly name: string
  readonly path: string
  readonly sound: unknown
  readonly argv: readonly string[]
  readonly exits?: readonly number[]
  readonly env?: Readonly<Record<string, string>>
  readonly isSecret?: true
}

const gateway = {
  listen: { host: '127.0.0.1', port: 8787 },
  admin: { port: 8788 },
  store: './no-store-yet',
  chain: {
    ...chainSectionOf(testContracts),
    confirmations: 'finalized',
    max_head_age_seconds: 30,
  },
  questions: './questions.json',
  slugs: { source: 'registry' },
  admission: { enabled: true, allowlist: [address] },
  budget: { window_seconds: 60, per_ip_items: 120, global_items: 1000 },
  cors: { origins: ['https://app.test'] },
  proxy: { trusted_cidrs: ['10.0.0.0/8'] },
  pipeline: { enabled: true },
  executor: { enabled: true, key_file: './executor.key', max_fee_gwei: 1000, batch: 10 },
}
const questions = [
  {
    question_id: identifier,
    slug: 'will-it-hold',
    requester: testContracts.requesters[0]?.address,
  },
  {
    question_id: `0x${'3'.repeat(64)}`,
    request: {
      oracle: testContracts.oracles[0],
      requester: testContracts.requesters[0]?.address,
      identifier: `0x${'5'.repeat(64)}`,
      timestamp: '1760000000',
      ancillary_data: '0x71',
    },
  },
]
const keystore = {
  version: 3,
  id: '00000000-0000-4000-8000-000000000000',
  address: address.slice(2),
  crypto: {
    cipher: 'aes-128-ctr',
    cipherparams: { iv: 'ab'.repeat(16) },
    ciphertext: 'cd'.repeat(32),
    mac: 'ef'.repeat(32),
    kdf: 'pbkdf2',
    kdfparams: { c: 1, prf: 'hmac-sha256', dklen: 32, salt: '12'.repeat(16) },
  },
}
const rows = [
  { identifier, outcome: 'p2', client_ref: 'one' },
  {
    identifier: 'will-it-hold',
    proposed_price: priceOf.p1,
    amount: '750000000',
    nonce: '4',
    deadline: '90m',
  },
]
const payload = {
  version: { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' },
  proposer: address,
  outcome: 'p2',
  max_payment: '0',
  permit: { amount: '750000000', nonce: '7', deadline: '1790000000' },
  signature: `0x${'ab'.repeat(64)}1b`,
}
const submitted = [3, 4, 5, 6, 75]

export const kinds: readonly Kind[] = [
  {
    name: 'trust.json',
    path: 'trust/default.json',
    sound: { ...pins, slugs: { 'will-it-hold': identifier } },
    argv: ['trust', 'show'],
  },
  {
    name: 'config.json',
    path: 'config.json',
    sound: {
      profile: 'main',
      profiles: { main: { 'max-amount': '5', gateway: 'https://g.test' } },
    },
    argv: ['config', 'list'],
  },
  {
    name: 'gateway.json',
    path: 'gateway.json',
    sound: gateway,
    argv: argvOf`operator list --config gateway.json`,
    exits: [74],
  },
  {
    name: 'questions.json',
    path: 'questions.json',
    sound: questions,
    argv: argvOf`operator questions list --config gateway.json`,
  },
  {
    name: 'rows as NDJSON',
    path: 'rows.ndjson',
    sound: rows.map((row) => `${JSON.stringify(row)}\n`).join(''),
    argv: ['plan', 'rows.ndjson'],
  },
  { name: 'rows as a JSON array', path: 'rows.json', sound: rows, argv: ['plan', 'rows.json'] },
  {
    name: 'rows as CSV',
    path: 'rows.csv',
    sound: `identifier,outcome,client_ref\r\n${identifier},p2,"one, ""quoted"""\r\nwill-it-hold,p1,\r\n`,
    argv: ['plan', 'rows.csv'],
  },
  {
    name: 'a keystore',
    path: 'keystores/main.json',
    sound: keystore,
    argv: ['account', 'show', 'main'],
    isSecret: true,
  },
  {
    name: 'a keystore that is opened',
    path: 'keystores/main.json',
    sound: { ...keystore, address: undefined },
    argv: argvOf`eligibility --account main --password-file password`,
    exits: [4],
    isSecret: true,
  },
  {
    name: 'a key file',
    path: 'key',
    sound: `${key}\n`,
    argv: ['eligibility'],
    exits: [4],
    env: { PROPOSER_KEY_FILE: 'key' },
    isSecret: true,
  },
  {
    name: 'a context',
    path: 'context.json',
    sound: question,
    argv: argvOf`sign ${identifier} --outcome p2 --context context.json`,
    exits: [5],
    env: { PROPOSER_KEY_FILE: 'good-key' },
  },
  {
    name: 'a payload',
    path: 'payload.json',
    sound: payload,
    argv: ['submit', identifier, 'payload.json'],
    exits: submitted,
  },
]

export async function soundHome(home: string): Promise<void> {
  for (const folder of ['trust', 'keystores']) await mkdir(join(home, folder), { recursive: true })
  await writeFile(join(home, 'password'), 'secret\n', { mode: 0o600 })
  await writeFile(join(home, 'good-key'), `0x${'11'.repeat(32)}\n`, { mode: 0o600 })
  for (const kind of kinds) await put(home, kind, bytesOf(kind.sound))
}

export interface FileDraw {
  readonly kind: number
  readonly how: number
  readonly edits: readonly Edit[]
}
export const fileDraws: fc.Arbitrary<FileDraw> = fc.record({
  kind: fc.nat(kinds.length - 1),
  how: fc.nat(99),
  edits: editsUpTo(3, 1),
})

const bytesOf = (value: unknown): Uint8Array<ArrayBuffer> =>
  new TextEncoder().encode(
    typeof value === 'string' ? value : (JSON.stringify(value, undefined, 1) ?? ''),
  )

async function put(home: string, kind: Kind, bytes: Uint8Array): Promise<void> {
  const path = join(home, kind.path)
  await rm(path, { recursive: true, force: true })
  await writeFile(path, bytes, { mode: 0o600 })
}

export async function putDamaged(
  home: string,
  { kind: at, how, edits }: FileDraw,
): Promise<{ readonly kind: Kind; readonly text: string }> {
  const kind = kinds[at] as Kind
  const path = join(home, kind.path)
  const [[place, , pick] = [0, 0, 0] as const] = edits
  if (how >= 94) {
    await rm(path, { recursive: true, force: true })
    if (how === 94) await mkdir(path)
    else if (how === 95) await symlink(path, path)
    else if (how === 96) await put(home, kind, new Uint8Array(5 * 1024 * 1024).fill(0x20))
    else if (how === 97) await put(home, kind, new Uint8Array(0))
    else if (how === 98) {
      await put(home, kind, bytesOf(kind.sound))
      await chmod(path, 0o644)
    }
    return { kind, text: '' }
  }
  const { sound } = kind
  let bytes: Uint8Array
  if (how < 50 && typeof sound !== 'string') bytes = bytesOf(edited(sound, edits))
  else if (how < 70)
    bytes = bytesOf(editedText(typeof sound === 'string' ? sound : JSON.stringify(sound), edits))
  else if (how < 88) bytes = editedBytes(bytesOf(sound), edits)
  else if (how < 91) bytes = bytesOf(`${'['.repeat(20_000)}${place}${']'.repeat(pick)}`)
  else
    bytes = bytesOf(
      [
        tokens[0],
        '\u001b[31m',
        `"${'x'.repeat(70_000)}"`,
        `[${'{},'.repeat(pick)}{}]`,
        '{}',
        'null',
        '0',
      ][pick % 7],
    )
  await put(home, kind, bytes)
  return { kind, text: new TextDecoder().decode(bytes) }
}

export const putBack = (home: string, kind: Kind): Promise<void> =>
  put(home, kind, bytesOf(kind.sound))
