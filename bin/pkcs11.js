// Loads a PKCS#11 module in a process of its own: a vendor's native code may crash or hang, and
// then takes this process with it and not the one that journals. Calls and results go over the IPC
// channel, the PIN comes over stdin alone. What a result means is judged on the other side.
const { endianness } = require('node:os')
const { setTimeout: sleep } = require('node:timers/promises')
const { isMainThread, Worker, workerData } = require('node:worker_threads')

/** What this process holds; `session` once a token is open. */
const held = { pkcs11: undefined, lib: undefined, session: undefined }

/** A failure as the other side reads it: the name of a CKR_ code, or one of our own. */
const failure = (name, message) => Object.assign(new Error(message), { name })

const calls = {
  /** Loads the module: the tokens that are there now. */
  load({ module }) {
    try {
      held.pkcs11 = require('pkcs11js')
    } catch (error) {
      throw failure('NO_PACKAGE', String(error.message))
    }
    held.lib = new held.pkcs11.PKCS11()
    try {
      held.lib.load(module)
    } catch (error) {
      throw failure('NO_MODULE', String(error.message))
    }
    held.lib.C_Initialize()
    return held.lib.C_GetSlotList(true).flatMap((slot) => tokenOf(slot))
  },

  /** Opens a session with the token in a slot, with the PIN that comes over stdin. */
  async login({ slot }) {
    const { lib, pkcs11 } = held
    const pin = await readPin()
    held.session = lib.C_OpenSession(Buffer.from(slot, 'hex'), pkcs11.CKF_SERIAL_SESSION)
    try {
      lib.C_Login(held.session, pkcs11.CKU_USER, pin.toString('utf8'))
    } finally {
      pin.fill(0)
    }
    return null
  },

  /** Private keys with this label and ID, and the points of the public keys beside them. */
  keys({ id, label }) {
    const { pkcs11 } = held
    const wanted = [
      ...(label === undefined ? [] : [{ type: pkcs11.CKA_LABEL, value: Buffer.from(label) }]),
      ...(id === undefined ? [] : [{ type: pkcs11.CKA_ID, value: Buffer.from(id, 'hex') }]),
    ]
    return objects(pkcs11.CKO_PRIVATE_KEY, wanted).map((key) => keyOf(key))
  },

  /** r and s in hex, of a digest in hex. */
  sign({ key, digest }) {
    const { lib, pkcs11, session } = held
    lib.C_SignInit(session, { mechanism: pkcs11.CKM_ECDSA }, Buffer.from(key, 'hex'))
    return lib.C_Sign(session, Buffer.from(digest, 'hex'), Buffer.alloc(1_024)).toString('hex')
  },
}

function tokenOf(slot) {
  const { lib, pkcs11 } = held
  const { flags, label, manufacturerID, model, serialNumber } = lib.C_GetTokenInfo(slot)
  if ((flags & pkcs11.CKF_TOKEN_INITIALIZED) === 0) return []
  const token = { label, manufacturer: manufacturerID, model, serial: serialNumber }
  const flagged = (flag) => (flags & flag) !== 0
  return {
    ...Object.fromEntries(Object.entries(token).map(([name, text]) => [name, text.trimEnd()])),
    slot: slot.toString('hex'),
    slotId: numberOf(slot),
    isLocked: flagged(pkcs11.CKF_USER_PIN_LOCKED),
    isLastTry: flagged(pkcs11.CKF_USER_PIN_FINAL_TRY),
  }
}

/** A CK_ULONG, as wide as this platform has it. */
const numberOf = (bytes) =>
  Number(`0x${Buffer.from(endianness() === 'LE' ? bytes.toReversed() : bytes).toString('hex')}`)

async function readPin() {
  const parts = []
  for await (const part of process.stdin) parts.push(part)
  const pin = Buffer.concat(parts)
  for (const part of parts) part.fill(0)
  return pin
}

function objects(kind, wanted) {
  const { lib, pkcs11, session } = held
  lib.C_FindObjectsInit(session, [{ type: pkcs11.CKA_CLASS, value: kind }, ...wanted])
  try {
    // Two are as wrong as a hundred.
    return lib.C_FindObjects(session, 100)
  } finally {
    lib.C_FindObjectsFinal(session)
  }
}

/** An attribute's bytes in hex; null where the object has none, or does not tell. */
function attribute(object, type) {
  try {
    const [found] = held.lib.C_GetAttributeValue(held.session, object, [{ type }])
    return Buffer.from(found.value).toString('hex')
  } catch (error) {
    if (/^CKR_ATTRIBUTE_(TYPE_INVALID|SENSITIVE)$/.test(error.message)) return null
    throw error
  }
}

function keyOf(key) {
  const { pkcs11 } = held
  const id = attribute(key, pkcs11.CKA_ID)
  const label = attribute(key, pkcs11.CKA_LABEL)
  // A key and its public half have the same ID; where there is none, the same label.
  const beside =
    (id ?? '') === ''
      ? { type: pkcs11.CKA_LABEL, value: Buffer.from(label ?? '', 'hex') }
      : { type: pkcs11.CKA_ID, value: Buffer.from(id, 'hex') }
  const points = objects(pkcs11.CKO_PUBLIC_KEY, [beside]).map((one) =>
    attribute(one, pkcs11.CKA_EC_POINT),
  )
  return {
    key: key.toString('hex'),
    id: id ?? '',
    isEc: numberOf(Buffer.from(attribute(key, pkcs11.CKA_KEY_TYPE), 'hex')) === pkcs11.CKK_EC,
    curve: attribute(key, pkcs11.CKA_EC_PARAMS),
    sensitive: attribute(key, pkcs11.CKA_SENSITIVE),
    extractable: attribute(key, pkcs11.CKA_EXTRACTABLE),
    alwaysAuthenticate: attribute(key, pkcs11.CKA_ALWAYS_AUTHENTICATE),
    points: points.filter((point) => point !== null),
  }
}

/** Serves the calls of the other side until its channel closes. */
function serve() {
  // Native code that hangs does not hear that the channel closed.
  new Worker(__filename, { workerData: process.ppid }).unref()
  process.on('message', async ({ call, args }) => {
    try {
      process.send({ value: await calls[call](args) })
    } catch (error) {
      // A CKR_ code is the whole message of its error.
      const name = /^CKR_\w+$/.test(error.message) ? error.message : error.name
      process.send({ failure: { name, message: String(error.message) } })
    }
  })
  // Ctrl-C and a service manager end the gateway, which signs until it has drained. The channel
  // closes when it has ended, however it did.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => undefined)
  process.on('disconnect', () => {
    try {
      held.lib?.C_Finalize()
    } finally {
      process.exit()
    }
  })
}

/** On a thread of its own: ends this process where it outlives its parent, with a token open. */
async function outlive(parent) {
  while (process.ppid === parent) await sleep(500)
  // Time enough to close the session of a token over a network.
  await sleep(3_000)
  process.kill(process.pid, 'SIGKILL')
}

if (isMainThread) serve()
else void outlive(workerData)
