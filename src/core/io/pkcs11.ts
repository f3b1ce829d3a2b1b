/** A key in a PKCS#11 token (contract §9), refused where it could leave it. */

import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import * as z from 'zod/mini'
import type { Hex } from '#ports'
import { ProposerError, UnavailableError, UsageError } from '#protocol/errors'
import { quoteWords, safeText } from '#protocol/node-words'
import { type Pkcs11Uri, Pkcs11UriFault, parsePkcs11Uri } from '#protocol/pkcs11-uri'
import { addressOf } from '#protocol/recovered'
import type { Address } from '#protocol/schema'
import { completeSignature } from '#protocol/signature'
import { counted } from '#protocol/text'
import { fromHex } from '#protocol/witness'
import { type KeySigner, readPinFile } from './key-files.js'

interface Pkcs11Place {
  readonly uri: string
  readonly module: string
  readonly pin_file: string
}

const hexText = z.string().check(z.regex(/^([0-9a-f]{2})*$/))
const flag = z.nullable(hexText)
const Token = z.object({
  slot: hexText,
  slotId: z.number(),
  label: z.string(),
  manufacturer: z.string(),
  model: z.string(),
  serial: z.string(),
  isLocked: z.boolean(),
  isLastTry: z.boolean(),
})
type Token = z.infer<typeof Token>
const Key = z.object({
  key: hexText,
  id: hexText,
  isEc: z.boolean(),
  curve: z.nullable(hexText),
  sensitive: flag,
  extractable: flag,
  alwaysAuthenticate: flag,
  points: z.array(hexText),
})
type Key = z.infer<typeof Key>
const Signature = z.string().check(z.regex(/^[0-9a-f]{128}$/))

interface Opened {
  readonly module: Pkcs11Module
  readonly key: string
  readonly address: Address
}

/** Opens a lost token again, and asks none twice with a wrong PIN: tokens lock. */
export async function openPkcs11(
  place: Pkcs11Place,
  { expected, signal }: { expected?: Address; signal?: AbortSignal } = {},
): Promise<KeySigner> {
  const uri = uriOf(place.uri)
  let address = expected
  let refused: UsageError | undefined
  let disposed = false
  const open = async (): Promise<Opened> => {
    if (refused !== undefined) throw refused
    const module = startModule(place.module, signal)
    try {
      const opened = await openKey(module, place, uri)
      if (address !== undefined && opened.address !== address)
        throw new UsageError(
          'token_key_differs',
          `the key of the URI in the token is of ${opened.address}, not of ${address}`,
          'correct the URI, or add the key as another account',
        )
      return opened
    } catch (error) {
      module.end()
      if (error instanceof UsageError && neverAgain.has(error.code)) refused = error
      throw error
    }
  }
  let session: Promise<Opened> | undefined
  const drop = () => {
    session?.then(
      ({ module }) => module.end(),
      () => undefined,
    )
    session = undefined
  }
  const current = () => {
    session ??= open()
    return session
  }
  address = (await current()).address
  const own = address
  return {
    address: own,
    async signDigest(digest) {
      if (disposed) throw new Error('the signer has been disposed of')
      try {
        const { module, key } = await current()
        return await signatureOf(module, key, digest, own, place)
      } catch (error) {
        drop()
        throw error
      }
    },
    dispose() {
      disposed = true
      drop()
    },
  }
}

const neverAgain = new Set(['pin_wrong', 'pin_locked'])

function uriOf(text: string) {
  try {
    return parsePkcs11Uri(text)
  } catch (error) {
    if (!(error instanceof Pkcs11UriFault)) throw error
    throw new UsageError(
      'invalid_pkcs11_uri',
      error.message,
      'an example is pkcs11:token=proposer;object=main',
    )
  }
}

async function signatureOf(
  module: Pkcs11Module,
  key: string,
  digest: Hex,
  address: Address,
  place: Pkcs11Place,
) {
  const signed = await told(place, module.call('sign', { key, digest: digest.slice(2) }, Signature))
  const [r, s] = [signed.slice(0, 64), signed.slice(64)].map((part) => BigInt(`0x${part}`))
  const whole =
    r === undefined || s === undefined
      ? undefined
      : completeSignature(fromHex(digest), { r, s }, address)
  if (whole !== undefined) return whole
  throw new UnavailableError(
    'token_wrong_signature',
    `the token's signature is not of ${address}`,
    'check that the public key beside the private one is its own',
  )
}

async function openKey(module: Pkcs11Module, place: Pkcs11Place, uri: Pkcs11Uri) {
  const pin = await readPinFile(place.pin_file)
  try {
    const tokens = await told(place, module.call('load', { module: place.module }, z.array(Token)))
    const { slot } = onlyToken(tokens, uri)
    module.givePin(pin.slice())
    await told(place, module.call('login', { slot }, z.null()))
  } finally {
    pin.fill(0)
  }
  const wanted = { id: uri.id, label: uri.object }
  const keys = await told(place, module.call('keys', wanted, z.array(Key)))
  const found = onlyKey(keys)
  return { module, key: found.key, address: addressOfKey(found) }
}

function onlyToken(tokens: readonly Token[], uri: Pkcs11Uri) {
  const matching = tokens.filter(
    (token) =>
      (uri.token ?? token.label) === token.label &&
      (uri.manufacturer ?? token.manufacturer) === token.manufacturer &&
      (uri.model ?? token.model) === token.model &&
      (uri.serial ?? token.serial) === token.serial &&
      (uri.slotId ?? token.slotId) === token.slotId,
  )
  const [token] = matching
  if (token === undefined)
    throw new UnavailableError(
      'token_absent',
      'no token that is present matches the URI',
      'plug the token in, or correct the URI: `pkcs11-tool --module <module> --list-slots`',
    )
  if (matching.length > 1)
    throw new UsageError(
      'token_ambiguous',
      `${matching.length} tokens match the URI`,
      `add serial=<serial> to it: ${matching.map(({ serial }) => safeText(serial)).join(', ')}`,
    )
  if (token.isLocked) throw pinLocked()
  if (token.isLastTry)
    throw new UsageError(
      'pin_last_try',
      'the next wrong PIN locks the token, so none is tried',
      'log in once with another program, such as pkcs11-tool --login --list-objects',
    )
  return token
}

const pinLocked = () =>
  new UsageError(
    'pin_locked',
    'the PIN of the token is locked: it was wrong too often',
    'have the security officer of the token set it anew',
  )

function onlyKey(keys: readonly Key[]) {
  const [key] = keys
  if (key === undefined)
    throw new UsageError(
      'token_key_missing',
      'the token holds no private key that matches the URI',
      'correct object= and id= of the URI: `pkcs11-tool --module <module> --login --list-objects`',
    )
  if (keys.length > 1)
    throw new UsageError(
      'token_key_ambiguous',
      `${counted(keys.length, 'private key')} of the token match the URI`,
      `add one of their IDs to it: ${keys.map(({ id }) => idPart(id)).join(', ')}`,
    )
  return key
}

const idPart = (id: string) => `id=${id.replaceAll(/../g, '%$&')}`

const secp256k1 = '06052b8104000a'
const isSet = (bytes: string | null) => bytes !== null && /[1-9a-f]/.test(bytes)

function addressOfKey(key: Key) {
  const unusable = (why: string, hint: string) =>
    new UsageError('token_key_unusable', `the key in the token cannot be used: ${why}`, hint)
  const another = 'make one on secp256k1, and name it in the URI'
  if (!key.isEc) throw unusable('it is of no elliptic curve', another)
  if (key.curve !== secp256k1) throw unusable('it is on another curve than secp256k1', another)
  if (isSet(key.extractable) || !isSet(key.sensitive))
    throw new UsageError(
      'token_key_extractable',
      'the key may be read out of the token',
      'make one in the token that is sensitive and not extractable, and name it in the URI',
    )
  if (isSet(key.alwaysAuthenticate))
    throw unusable('it asks for the PIN at each signature', 'make one that does not')
  const points = new Set(key.points.map(uncompressed))
  const [point] = points
  if (point === undefined)
    throw unusable(
      'its public key is not in the token, so its address is unknown',
      'write the public key into the token, with the ID of the private one',
    )
  if (points.size > 1)
    throw unusable(
      `${points.size} public keys have its ID`,
      'remove the one that is not its own from the token',
    )
  return addressOf(fromHex(`0x${point}`))
}

/** Some modules do not wrap the point into an OCTET STRING. */
function uncompressed(point: string) {
  const found = /^(?:0441)?(04[0-9a-f]{128})$/.exec(point)?.[1]
  if (found !== undefined) return found
  throw new UsageError(
    'token_key_unusable',
    'the public key in the token is no point in full',
    'write the uncompressed public key into the token',
  )
}

const lost = new Set([
  'CKR_TOKEN_NOT_PRESENT',
  'CKR_TOKEN_NOT_RECOGNIZED',
  'CKR_DEVICE_REMOVED',
  'CKR_DEVICE_ERROR',
  'CKR_SESSION_HANDLE_INVALID',
  'CKR_SESSION_CLOSED',
  'CKR_USER_NOT_LOGGED_IN',
  'CKR_KEY_HANDLE_INVALID',
  'CKR_OBJECT_HANDLE_INVALID',
])
const wrongPin = new Set(['CKR_PIN_INCORRECT', 'CKR_PIN_INVALID', 'CKR_PIN_LEN_RANGE'])

async function told<T>({ module, pin_file }: Pkcs11Place, called: Promise<T>) {
  try {
    return await called
  } catch (error) {
    if (error instanceof ProposerError) throw error
    if (!(error instanceof ModuleFailure))
      throw new UnavailableError(
        'token_failed',
        `what the PKCS#11 module ${quoteWords(module)} gives back cannot be read`,
        { hint: 'check that the module is that of the token', cause: error },
      )
    throw wordsOf(error, module, pin_file)
  }
}

function wordsOf({ code, message }: ModuleFailure, module: string, pinFile: string) {
  if (code === 'NO_PACKAGE')
    return new UsageError(
      'pkcs11_package_missing',
      'the optional package pkcs11js, which talks to tokens, is not installed, or not built',
      'install a C++ compiler, make and Python 3, then `npm install pkcs11js@2`, with --global if proposer was installed that way',
    )
  if (code === 'NO_MODULE')
    return new UsageError(
      'pkcs11_module_unusable',
      `${module} cannot be loaded as a PKCS#11 module: ${safeText(message.replace(`${module}: `, ''))}`,
      'name the .so file of your token, such as /usr/lib/softhsm/libsofthsm2.so',
    )
  if (wrongPin.has(code))
    return new UsageError(
      'pin_wrong',
      `the token refuses the PIN: ${quoteWords(pinFile)}`,
      'correct the file, then start again: this run tries it no more, for a token locks after a few wrong PINs',
    )
  if (code === 'CKR_PIN_LOCKED') return pinLocked()
  if (lost.has(code))
    return new UnavailableError(
      'token_lost',
      `the token is gone, or was reset (${code})`,
      'plug it in again: it is opened at the next use',
    )
  return new UnavailableError(
    'token_failed',
    `the token reports ${safeText(message)}`,
    'look the code up in the manual of the token; it is asked again at the next use',
  )
}

/** `CKR_…`, `NO_PACKAGE` or `NO_MODULE`. */
class ModuleFailure extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message)
  }
}

interface Pkcs11Module {
  call<T>(call: string, args: object, shape: z.ZodMiniType<T>): Promise<T>
  /** Zeroed here when it has been written. */
  givePin(pin: Uint8Array): void
  end(): void
}

/** A person may have to touch it. */
const callLimitMs = 20_000

const Reply = z.union([
  z.object({ failure: z.object({ name: z.string(), message: z.string() }) }),
  z.object({ value: z.unknown() }),
])

const othersVariables = () =>
  Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('PROPOSER_')))

/**
 * In a process of its own: a vendor's native code may crash or hang. `file` is quoted in errors,
 * for /readyz is read by everybody.
 */
function startModule(file: string, signal?: AbortSignal): Pkcs11Module {
  const name = `the PKCS#11 module ${quoteWords(file)}`
  // A line of its output could be anything.
  const child = spawn(process.execPath, [join(packageRoot(), 'bin', 'pkcs11.js')], {
    stdio: ['pipe', 'ignore', 'ignore', 'ipc'],
    windowsHide: true,
    // A module reads variables of its own. NODE_OPTIONS stay here: a report about a crash would
    // hold the PIN.
    env: { ...othersVariables(), NODE_OPTIONS: undefined },
  })
  let fault: unknown
  let answer: ((reply: unknown) => void) | undefined
  let giveUp: ((error: unknown) => void) | undefined
  const fail = (error: unknown) => {
    fault ??= error
    giveUp?.(fault)
  }
  const crashed = (how: string) =>
    fail(
      new UnavailableError(
        'pkcs11_crashed',
        `${name} crashed (${how})`,
        'nothing was signed; it is loaded again at the next use',
      ),
    )
  const stop = () => {
    fail(signal?.reason)
    child.kill('SIGKILL')
  }
  signal?.addEventListener('abort', stop, { once: true })
  if (signal?.aborted) stop()
  child.on('error', ({ message }) => crashed(message))
  child.on('exit', (code, killed) => {
    signal?.removeEventListener('abort', stop)
    crashed(killed ?? `exit code ${code}`)
  })
  child.on('message', (reply) => answer?.(reply))
  child.stdin?.on('error', () => undefined)
  const hold = (holds: boolean) => {
    for (const one of [child, child.channel]) holds ? one?.ref() : one?.unref()
  }
  hold(false)

  const ask = (call: string, args: object) =>
    new Promise<unknown>((resolve, reject) => {
      if (fault !== undefined) return reject(fault)
      const limit = setTimeout(() => {
        fail(
          new UnavailableError(
            'pkcs11_timed_out',
            `${name} did not respond within ${callLimitMs / 1_000} s`,
            'check the token; the module is loaded again at the next use',
          ),
        )
        child.kill('SIGKILL')
      }, callLimitMs)
      hold(true)
      const settled = () => {
        clearTimeout(limit)
        hold(false)
        answer = undefined
        giveUp = undefined
      }
      answer = (reply) => {
        settled()
        resolve(reply)
      }
      giveUp = (error) => {
        settled()
        reject(error)
      }
      child.send({ call, args }, () => undefined)
    })

  let last: Promise<unknown> = Promise.resolve()
  return {
    call(call, args, shape) {
      const asked = last.then(() => ask(call, args))
      last = asked.catch(() => undefined)
      return asked.then((reply) => {
        const parsed = Reply.parse(reply)
        if ('failure' in parsed)
          throw new ModuleFailure(parsed.failure.name, parsed.failure.message)
        return shape.parse(parsed.value)
      })
    },
    givePin(pin) {
      child.stdin?.end(pin, () => pin.fill(0))
    },
    end() {
      void last.then(() => {
        if (child.connected) child.disconnect()
        setTimeout(() => child.kill('SIGKILL'), callLimitMs).unref()
      })
    },
  }
}

/** Sources lie three folders below it, the built program one or two. */
function packageRoot() {
  for (let folder = dirname(fileURLToPath(import.meta.url)), up = 0; up < 5; up += 1) {
    if (existsSync(join(folder, 'bin', 'proposer.js'))) return folder
    folder = dirname(folder)
  }
  throw new RangeError('the package lacks bin/proposer.js')
}
