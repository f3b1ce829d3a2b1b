import { execFileSync } from 'node:child_process'
import { chmod, mkdir, mkdtemp, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createKeystore, listAccounts, openAccountKey, readAccount } from '#io/accounts'
import { readNamed, systemFiles } from '#io/files'
import { parseKey, readKeyFile, readPasswordFile, signerFromKey } from '#io/keys'
import { decryptKeystore } from '#io/keystore'
import { fromHex, toHex } from '#protocol/witness'
import { temporaryFolder } from '#support/folders'
import vectors from '../../fixtures/vectors/witness.json' with { type: 'json' }

const home = temporaryFolder()

const hexKey = `0x${'11'.repeat(32)}`

test.skipIf(process.platform === 'win32')(
  'R23: a key or a context that comes by a pipe keeps nobody but its reader waiting',
  async () => {
    const path = join(home, 'pipe')
    execFileSync('sh', ['-c', 'mkfifo "$0"', path])
    await expect(systemFiles.read(path)).rejects.toMatchObject({ code: 'ESPIPE', path })
    for (const read of [() => readKeyFile(path), () => readNamed(path, 4_096)]) {
      const reading = read()
      // Whoever opens a pipe for reading waits for its writer: here the same process.
      await writeFile(path, hexKey)
      expect(['32', '66']).toContain(String((await reading).length))
    }
  },
)

test("domain §3.3: signatures are the vectors' byte for byte: low s, v 27 or 28, RFC 6979", async () => {
  for (const { private_key, signer, signature, expected } of vectors.cases) {
    const made = signerFromKey(fromHex(private_key))
    expect(made.address).toBe(signer)
    expect(await made.signDigest(expected.digest as `0x${string}`)).toBe(signature)
  }
  expect(vectors.cases).toHaveLength(40)
})

test('R5: dispose overwrites the key and ends signing', async () => {
  const key = new Uint8Array(32).fill(3)
  const signer = signerFromKey(key)
  signer.dispose()
  expect(key.every((byte) => byte === 0)).toBe(true)
  await expect(signer.signDigest(toHex(new Uint8Array(32)))).rejects.toThrow('disposed')
})

test('a key out of range is refused', () => {
  for (const bad of [
    new Uint8Array(32),
    new Uint8Array(32).fill(255),
    new Uint8Array(31).fill(1),
  ]) {
    expect(() => signerFromKey(bad)).toThrow(expect.objectContaining({ code: 'invalid_key' }))
  }
})

describe('key files (contract §7, robustness §6)', () => {
  const file = async (text: string, mode = 0o600) => {
    const path = join(home, `f${Math.round(performance.now() * 1_000)}`)
    await writeFile(path, text, { mode })
    await chmod(path, mode)
    return path
  }

  test('0x and 64 hex digits, a newline allowed', async () => {
    for (const text of [hexKey, `${hexKey}\n`, `${hexKey}\r\n`])
      expect(toHex(await readKeyFile(await file(text)))).toBe(hexKey)
  })

  test('R5: anything else is refused without showing it', () => {
    const secret = 'a1b2c3'
    for (const text of [
      '',
      secret,
      hexKey.slice(2),
      `${hexKey}00`,
      ` ${hexKey}`,
      `${hexKey}\n\n`,
      `${hexKey} ${secret}`,
    ]) {
      try {
        parseKey(text, 'the file')
        throw new Error('taken')
      } catch (error) {
        expect(error).toMatchObject({ code: 'invalid_key', meta: { exitCode: 2 } })
        expect(String(error)).not.toContain(secret)
        expect(String(error)).not.toContain('1111')
      }
    }
  })

  test.skipIf(process.platform === 'win32').each([0o640, 0o604, 0o660, 0o644])(
    'mode %o is refused with the command that mends it',
    async (mode) => {
      await expect(readKeyFile(await file(hexKey, mode))).rejects.toMatchObject({
        code: 'key_file_mode',
        meta: { hint: expect.stringContaining('chmod 600') },
      })
      await expect(readPasswordFile(await file('secret', mode))).rejects.toMatchObject({
        code: 'password_file_mode',
      })
    },
  )

  test('a missing or an endless file is refused', async () => {
    await expect(readKeyFile(join(home, 'none'))).rejects.toMatchObject({
      code: 'key_file_unreadable',
    })
    await expect(readKeyFile(await file('x'.repeat(10_000)))).rejects.toMatchObject({
      code: 'key_file_unreadable',
    })
  })

  test('a password keeps its spaces and loses one closing newline', async () => {
    expect(await readPasswordFile(await file(' pass word \n\n'))).toBe(' pass word \n')
  })
})

test('made, listed, opened; never overwritten; the wrong password is told apart', async () => {
  const key = fromHex(hexKey)
  const made = await createKeystore(systemFiles, home, 'main', key, 'pass')
  expect(made.address).toBe(signerFromKey(fromHex(hexKey)).address)
  expect(await listAccounts(systemFiles, home)).toEqual([{ name: 'main', address: made.address }])
  expect(await readAccount(systemFiles, home, 'main')).toEqual({
    name: 'main',
    address: made.address,
  })
  const text = new TextDecoder().decode(await systemFiles.read(made.path))
  expect(toHex(await decryptKeystore(text, 'pass', 'it'))).toBe(hexKey)
  const opened = await openAccountKey(systemFiles, home, 'main', async () => 'pass')
  expect(opened.address).toBe(made.address)
  const wrong = openAccountKey(systemFiles, home, 'main', async () => 'wrong')
  await expect(wrong).rejects.toMatchObject({
    code: 'wrong_password',
    meta: { exitCode: 2 },
  })
  await expect(createKeystore(systemFiles, home, 'main', key, 'pass')).rejects.toMatchObject({
    code: 'account_exists',
  })
  expect((await systemFiles.list(join(home, 'keystores'))).sort()).toEqual(['main.json'])
  expect(text).not.toContain('11'.repeat(8))
  expect(JSON.parse(text)).toMatchObject({
    version: 3,
    crypto: { kdf: 'scrypt', cipher: 'aes-128-ctr', kdfparams: { n: 131_072, r: 8, p: 1 } },
  })
})

const crypto = { cipher: 'aes-128-ctr', cipherparams: { iv: '83dbcc02d8ccb40e466191a123791e0e' } }
const scryptVector = {
  crypto: {
    ...crypto,
    ciphertext: 'd172bf743a674da9cdad04534d56926ef8358534d458fffccd4e6ad2fbde479c',
    kdf: 'scrypt',
    kdfparams: {
      dklen: 32,
      n: 262_144,
      p: 8,
      r: 1,
      salt: 'ab0c7876052600dd703518d6fc3fe8984592145b591fc8fb5c6d43190334ba19',
    },
    mac: '2103ac29920d71da29f15d75b4a16dbe95cfd7ff8faea1056c33131d846e3097',
  },
  id: '3198bc9c-6672-5ab3-d995-4942343ae5b6',
  version: 3,
}
const pbkdf2Vector = {
  crypto: {
    cipher: 'aes-128-ctr',
    cipherparams: { iv: '6087dab2f9fdbbfaddc31a909735c1e6' },
    ciphertext: '5318b4d5bcd28de64ee5559e671353e16f075ecae9f99c7a79a38af5f869aa46',
    kdf: 'pbkdf2',
    kdfparams: {
      c: 262_144,
      dklen: 32,
      prf: 'hmac-sha256',
      salt: 'ae3cd4e7013836a3df6bd7241b12db061dbe2c6785853cce422d148a624ce0bd',
    },
    mac: '517ead924a9d0dc3124507e3393d175ce3ff7c1e96529c6c555ce9e51205e9b2',
  },
  id: '3198bc9c-6672-5ab3-d995-4942343ae5b6',
  version: 3,
}
const vectorKey = '0x7a28b5ba57c53603b0b07b56bba752f7784bf506fa95edc395f5cf6c7514fe9d'

test.each([
  ['scrypt', scryptVector],
  ['pbkdf2', pbkdf2Vector],
])("the definition's %s vector opens", async (_kdf, vector) => {
  expect(toHex(await decryptKeystore(JSON.stringify(vector), 'testpassword', 'the vector'))).toBe(
    vectorKey,
  )
})

test('robustness §6: a cost that would eat the memory is refused before it is tried', async () => {
  const costs = [
    { n: 4_194_304, r: 8 },
    { n: 262_144, r: 9 },
    { n: 262_145, r: 1 },
    { n: 1, r: 1 },
    { n: 1_024, r: 1, p: 100_000 },
    { n: 262_144, r: 8, p: 2 },
    { n: 2, r: 1_048_576, p: 16 },
    { n: 65_536, r: 1, p: 33 },
  ]
  for (const cost of costs) {
    const kdfparams = { ...scryptVector.crypto.kdfparams, ...cost }
    const text = JSON.stringify({
      ...scryptVector,
      crypto: { ...scryptVector.crypto, kdfparams },
    })
    await expect(decryptKeystore(text, 'testpassword', 'the vector')).rejects.toMatchObject({
      code: 'invalid_keystore',
    })
  }
})

test('what is no keystore, or tells another address, is refused', async () => {
  const wrongAddress = JSON.stringify({ ...pbkdf2Vector, address: '11'.repeat(20) })
  for (const text of ['', '{}', '{"version":1}', wrongAddress]) {
    await expect(decryptKeystore(text, 'testpassword', 'the file')).rejects.toMatchObject({
      code: 'invalid_keystore',
    })
  }
})

test('robustness §2: a name that could leave the folder is refused', async () => {
  for (const name of ['../x', 'a/b', '', '.hidden', 'a'.repeat(65), 'a\u0000']) {
    await expect(readAccount(systemFiles, home, name)).rejects.toMatchObject({
      code: 'invalid_account_name',
    })
  }
  const asked: string[] = []
  const unknown = openAccountKey(systemFiles, home, 'nobody', async (name) => {
    asked.push(name)
    return 'x'
  })
  await expect(unknown).rejects.toMatchObject({ code: 'account_not_found' })
  expect(asked).toEqual([])
  await expect(
    createKeystore(systemFiles, home, 'empty', fromHex(hexKey), ''),
  ).rejects.toMatchObject({ code: 'empty_password' })
})

test('contract §6: a folder or a loop of links in the place of a keystore is a wrong input (exit 2), and the list leaves it out', async () => {
  const odd = await mkdtemp(join(home, 'odd-'))
  await mkdir(join(odd, 'keystores', 'folder.json'), { recursive: true })
  await symlink(join(odd, 'keystores', 'loop.json'), join(odd, 'keystores', 'loop.json'))
  for (const name of ['folder', 'loop']) {
    await expect(readAccount(systemFiles, odd, name)).rejects.toMatchObject({
      code: 'keystore_unreadable',
      meta: { exitCode: 2 },
    })
    expect(await systemFiles.exists(join(odd, 'keystores', `${name}.json`))).toBe(true)
  }
  expect(await listAccounts(systemFiles, odd)).toEqual([])
})

describe('accounts whose key is elsewhere', () => {
  const file = {
    schema: 'proposer.account-file/1',
    kind: 'pkcs11',
    address: `0x${'ab'.repeat(20)}`,
    uri: 'pkcs11:object=main',
    module: '/usr/lib/token.so',
    pin_file: '/etc/proposer/pin',
  }
  const kept = async (content: object) => {
    const folder = await mkdtemp(join(home, 'elsewhere-'))
    await mkdir(join(folder, 'keystores'))
    await writeFile(join(folder, 'keystores', 'hsm.json'), JSON.stringify(content))
    return folder
  }

  test('contract §9: they stand beside the keystores, with their address, and nobody is asked for a password', async () => {
    const folder = await kept(file)
    const [entry] = await listAccounts(systemFiles, folder)
    expect(entry).toMatchObject({
      name: 'hsm',
      address: file.address,
      elsewhere: { kind: 'pkcs11', holder: 'PKCS#11 token', place: { uri: file.uri } },
    })
    const opened = openAccountKey(systemFiles, folder, 'hsm', async () => {
      throw new Error('a password was asked for')
    })
    await expect(opened).rejects.toMatchObject({ code: 'pin_file_unreadable' })
  })

  test.each([
    [{ ...file, kind: 'later' }, 'this version knows no kind "later"'],
    [{ ...file, schema: 'proposer.account-file/2' }, 'it is not as proposer.account-file/1 has it'],
    [{ ...file, address: '0x12' }, 'it is not as proposer.account-file/1 has it'],
    [{ ...file, uri: 7 }, 'it is not as the kind pkcs11 has it'],
    [{ ...file, pin: '1234' }, 'it is not as the kind pkcs11 has it'],
  ])(
    'what cannot be used is refused with a sentence, and the list leaves it out',
    async (content, why) => {
      const folder = await kept(content)
      await expect(readAccount(systemFiles, folder, 'hsm')).rejects.toMatchObject({
        code: 'invalid_account',
        detail: `the file of account hsm cannot be used: ${why}`,
        meta: { exitCode: 2 },
      })
      expect(await listAccounts(systemFiles, folder)).toEqual([])
    },
  )
})
