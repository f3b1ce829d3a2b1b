import { chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { secp256k1 } from '@noble/curves/secp256k1'
import { openPkcs11 } from '#io/pkcs11'
import { keccak } from '#protocol/keccak'
import { recoverSigner } from '#protocol/signature'
import { toHex } from '#protocol/witness'
import { run } from '#support/cli'
import { describeWith } from '#support/components'
import { temporaryFolder } from '#support/folders'
import { modulePid, pin, softHsm, type TestTokens, testTokens } from '#support/softhsm'

describeWith(softHsm, 'contract §9: keys in a PKCS#11 token', () => {
  let made: TestTokens
  let home: string
  const place = (uri: string, more: object = {}) => ({
    uri: `pkcs11:${uri}`,
    module: made.module,
    pin_file: made.pinFile,
    ...more,
  })
  beforeAll(async () => {
    home = temporaryFolder()
    made = await testTokens()
    made.token('proposer')
    made.key('proposer', 'main')
    made.key('proposer', 'open', { id: '02', extractable: true })
    made.key('proposer', 'p256', { id: '03', type: 'EC:prime256v1' })
    made.key('proposer', 'rsa', { id: '04', type: 'rsa:2048' })
    made.key('proposer', 'twin', { id: '05' })
    made.key('proposer', 'twin', { id: '06' })
    made.key('proposer', 'private-only', { id: '07' })
    made.tool('proposer', '--delete-object', '--type', 'pubkey', '--id', '07')
  })
  afterAll(async () => {
    await made?.remove()
  })

  test('500 signatures recover to the address, with low s', async () => {
    const signer = await openPkcs11(place('token=proposer;object=main;type=private'))
    const digests = Array.from({ length: 500 }, (_, n) => keccak(Uint8Array.of(n >> 8, n & 255)))
    const signatures = await Promise.all(digests.map((one) => signer.signDigest(toHex(one))))
    signer.dispose()
    expect(new Set(signatures).size).toBe(500)
    for (const [at, digest] of digests.entries()) {
      const signature = signatures[at] ?? '0x'
      expect(recoverSigner(digest, signature)).toBe(signer.address)
      expect(BigInt(`0x${signature.slice(66, 130)}`) <= secp256k1.CURVE.n / 2n).toBe(true)
      expect(signature.slice(130)).toMatch(/^1[bc]$/)
    }
  })

  test.each([
    ['token=proposer;object=open', 'token_key_extractable', 'the key may be read out of the token'],
    [
      'token=proposer;object=p256',
      'token_key_unusable',
      'the key in the token cannot be used: it is on another curve than secp256k1',
    ],
    [
      'token=proposer;id=%04',
      'token_key_unusable',
      'the key in the token cannot be used: it is of no elliptic curve',
    ],
    [
      'token=proposer;object=private-only',
      'token_key_unusable',
      'the key in the token cannot be used: its public key is not in the token, so its address is unknown',
    ],
    [
      'token=proposer;object=twin',
      'token_key_ambiguous',
      '2 private keys of the token match the URI',
    ],
    [
      'token=proposer;object=nobody',
      'token_key_missing',
      'the token holds no private key that matches the URI',
    ],
    ['token=other;object=main', 'token_absent', 'no token that is present matches the URI'],
    ['slot-id=1;object=main', 'token_absent', 'no token that is present matches the URI'],
    [
      'object=main?pin-value=1234',
      'invalid_pkcs11_uri',
      'the URI may not have pin-value: a PIN does not stand in a URI, but in the PIN file',
    ],
  ])('%s is refused', async (uri, code, detail) => {
    await expect(openPkcs11(place(uri))).rejects.toMatchObject({ code, detail })
  })

  test('keys of one label are told apart by the ID that the hint names', async () => {
    const both = openPkcs11(place('token=proposer;object=twin'))
    await expect(both).rejects.toMatchObject({
      meta: { hint: expect.stringMatching(/id=%05, id=%06|id=%06, id=%05/) },
    })
    const one = await openPkcs11(place('token=proposer;object=twin;id=%05'))
    const other = await openPkcs11(place('token=proposer;object=twin;id=%06'))
    expect(one.address).not.toBe(other.address)
    const mixed = openPkcs11(place('token=proposer;object=twin;id=%06'), { expected: one.address })
    await expect(mixed).rejects.toMatchObject({ code: 'token_key_differs' })
    one.dispose()
    other.dispose()
  })

  test.each([
    ['/etc/passwd', 'pkcs11_module_unusable'],
    ['/nowhere/token.so', 'pkcs11_module_unusable'],
    [process.execPath, 'pkcs11_module_unusable'],
  ])('%s is no module, and named', async (module, code) => {
    const opened = openPkcs11(place('object=main', { module }))
    await expect(opened).rejects.toMatchObject({
      code,
      detail: expect.stringContaining(`${module} cannot be loaded as a PKCS#11 module`),
    })
  })

  test('a wrong PIN is refused without its text, and tried once; a PIN that others may read is not read', async () => {
    const wrong = join(made.folder, 'wrong-pin')
    await writeFile(wrong, 'not-the-pin\n', { mode: 0o600 })
    const opened = openPkcs11(place('token=proposer;object=main', { pin_file: wrong }))
    await expect(opened).rejects.toMatchObject({
      code: 'pin_wrong',
      detail: `the token refuses the PIN: “${wrong}”`,
    })
    await writeFile(wrong, '\n')
    await expect(
      openPkcs11(place('token=proposer;object=main', { pin_file: wrong })),
    ).rejects.toMatchObject({ code: 'pin_empty' })
    await chmod(wrong, 0o644)
    await expect(
      openPkcs11(place('token=proposer;object=main', { pin_file: wrong })),
    ).rejects.toMatchObject({ code: 'pin_file_mode' })
  })

  test('a token that goes while it is used signs nothing, and signs again once it is back', async () => {
    const signer = await openPkcs11(place('token=proposer;object=main'))
    const digest = toHex(keccak(Uint8Array.of(1)))
    await signer.signDigest(digest)
    await made.away()
    const gone = await signer.signDigest(digest).catch((error: unknown) => error)
    expect(gone).toMatchObject({ code: 'token_lost', meta: { exitCode: 75 } })
    await expect(signer.signDigest(digest)).rejects.toMatchObject({ meta: { exitCode: 75 } })
    await made.back()
    expect(await signer.signDigest(digest)).toMatch(/^0x[0-9a-f]{130}$/)
    signer.dispose()
  })

  test('a module that crashes is named, signs nothing, and is loaded again at the next use', async () => {
    const signer = await openPkcs11(place('token=proposer;object=main'))
    const digest = toHex(keccak(Uint8Array.of(3)))
    process.kill(modulePid(process.pid), 'SIGSEGV')
    await expect(signer.signDigest(digest)).rejects.toMatchObject({
      code: 'pkcs11_crashed',
      detail: `the PKCS#11 module “${made.module}” crashed (SIGSEGV)`,
      meta: { exitCode: 75 },
    })
    expect(await signer.signDigest(digest)).toMatch(/^0x[0-9a-f]{130}$/)
    signer.dispose()
  })

  test.runIf(process.platform === 'linux')(
    'a module is given the environment without what is for this program',
    async () => {
      vi.stubEnv('PROPOSER_RPC_URL', 'https://node.example/v2/canary-of-a-key')
      const signer = await openPkcs11(place('token=proposer;object=main'))
      const given = await readFile(`/proc/${modulePid(process.pid)}/environ`, 'utf8')
      signer.dispose()
      vi.unstubAllEnvs()
      expect(given).toContain(made.env.SOFTHSM2_CONF)
      expect(given).not.toContain('canary-of-a-key')
    },
  )

  test('a PIN that has become wrong is tried once by a signer, however often it is asked', async () => {
    const file = join(made.folder, 'changing-pin')
    await writeFile(file, pin, { mode: 0o600 })
    const signer = await openPkcs11(place('token=proposer;object=main', { pin_file: file }))
    await made.away()
    const digest = toHex(keccak(Uint8Array.of(2)))
    await expect(signer.signDigest(digest)).rejects.toMatchObject({ meta: { exitCode: 75 } })
    await made.back()
    await writeFile(file, 'not-the-pin')
    await expect(signer.signDigest(digest)).rejects.toMatchObject({ code: 'pin_wrong' })
    await writeFile(file, pin)
    await expect(signer.signDigest(digest)).rejects.toMatchObject({ code: 'pin_wrong' })
    signer.dispose()
  })

  test('account add-pkcs11, list, show, sign, rename, remove; no password is asked for', async () => {
    const cli = (...argv: string[]) => run(home, argv, { env: made.env, interactive: false })
    const flags = ['--uri', 'pkcs11:token=proposer;object=main', '--module', made.module]
    const added = await cli('account', 'add-pkcs11', 'hsm', ...flags, '--pin-file', made.pinFile)
    expect(added).toMatchObject({ code: 0, stderr: '' })
    expect(
      await cli('account', 'add-pkcs11', 'hsm', ...flags, '--pin-file', made.pinFile),
    ).toMatchObject({ code: 2 })
    const listed = await cli('account', 'list')
    expect(listed.stdout).toMatch(/^hsm +0x[0-9a-f]{40} {2}\(PKCS#11 token\)\n$/)
    const shown = JSON.parse((await cli('account', 'show', 'hsm', '--json')).stdout)
    expect(shown).toMatchObject({
      schema: 'proposer.account/1',
      name: 'hsm',
      kind: 'pkcs11',
      uri: flags[1],
      module: made.module,
      pin_file: made.pinFile,
    })
    await chmod(made.pinFile, 0o644)
    const { stdout: report } = await cli('doctor', '--json')
    expect(JSON.parse(report).checks).toContainEqual(
      expect.objectContaining({ id: 'key_files', fix: `chmod 600 ${made.pinFile}` }),
    )
    await chmod(made.pinFile, 0o600)
    expect(await cli('account', 'rename', 'hsm', 'token')).toMatchObject({ code: 0 })
    const asked = await run(home, 'account remove token', {
      interactive: true,
      stdin: 'n\n',
    })
    expect(asked.stderr).toContain(
      'Delete account token? Its key stays where it is: PKCS#11 token.',
    )
    expect(await cli('account', 'remove', 'token', '--yes')).toMatchObject({ code: 0 })
    expect((await cli('account', 'list', '--json')).stdout).toContain('"accounts": []')
    for (const { stdout, stderr } of [added, listed, asked])
      expect(stdout + stderr).not.toContain(pin)
  })
})
