/** contract §9, `--safe`: Safe 1.4.1 contracts on anvil, two of three owners, the built command. */

import { mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { encodeFunctionData, parseAbi } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { safeMessage } from '#chain/safe'
import type { DevDescription } from '#devchain/dev-chain'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { argvOf } from '#support/argv'
import { openBrowser } from '#support/browser'
import { honestProvider, injectWallet } from '#support/browser-wallet'
import { lastErrorOf } from '#support/cli'
import { describeWith, testWith } from '#support/components'
import { workshop } from '#support/processes'
import type { ServeReady } from '#support/proposing'
import { safeContracts } from '#support/safe'
import type { WalletDocument } from '#support/wallet-server'

const shop = workshop()
const keys = [1, 2, 3, 4].map((n): Hex => `0x${String(n).repeat(64)}`)
const owners = keys.slice(0, 3).map((key) => addressOf(key))
const stranger = keys[3] as Hex
let dev: DevDescription
let url: string
let contracts: Awaited<ReturnType<typeof safeContracts>>
let safe: Address
let nextQuestion = 0

function addressOf(key: Hex): Address {
  return privateKeyToAccount(key).address.toLowerCase() as Address
}

async function fundedSafe(of: readonly Address[] = owners): Promise<Address> {
  const made = await contracts.newSafe(of, 2)
  const token = dev.trust.tokens[0] as Address
  const erc20 = parseAbi([
    'function transfer(address,uint256)',
    'function approve(address,uint256)',
  ])
  const hash = await contracts.client.writeContract({
    address: token,
    abi: erc20,
    functionName: 'transfer',
    args: [made, 12_000_000_000n],
  })
  await contracts.reader.waitForTransactionReceipt({ hash })
  const args = [dev.trust.permit2, 10n ** 12n] as const
  await contracts.actAs(
    made,
    token,
    encodeFunctionData({ abi: erc20, functionName: 'approve', args }),
  )
  return made
}

async function startWithSafe(): Promise<void> {
  const { folder, ...started } = await shop.devChain(20)
  dev = started.dev
  const proposer = dev.accounts.find(({ role }) => role === 'proposer')
  if (proposer === undefined) throw new Error('the dev chain has no proposers')
  contracts = await safeContracts(dev.rpc_url, dev.chain_id, proposer.private_key)
  safe = await fundedSafe()
  const config = join(folder, 'gateway.json')
  const gateway = JSON.parse(await readFile(config, 'utf8'))
  gateway.admission = { ...gateway.admission, allowlist: [safe] }
  await writeFile(config, JSON.stringify(gateway))
  const serve = argvOf`serve --config ${config} --port 0 --json`
  url = (await shop.start(serve).line<ServeReady>()).url
}

async function machine(key?: Hex) {
  const home = join(await shop.folder(), 'home')
  await mkdir(home, { mode: 0o700 })
  await writeFile(join(home, 'trust.json'), JSON.stringify(dev.trust))
  const use = async (own: Hex) => writeFile(join(home, 'key'), `${own}\n`, { mode: 0o600 })
  if (key !== undefined) await use(key)
  const env = {
    PROPOSER_HOME: home,
    PROPOSER_TRUST: join(home, 'trust.json'),
    PROPOSER_RPC_URL: dev.rpc_url,
    PROPOSER_GATEWAY: url,
    PROPOSER_KEY_FILE: join(home, 'key'),
  }
  const run = (...args: string[]) => shop.runHere(args, env)
  return { home, env, use, run, parts: join(home, 'parts.json') }
}
const questionOf = () => {
  const question = dev.questions[nextQuestion++]
  if (question === undefined) throw new Error('the dev chain has no more questions')
  return question.slug
}
const asOwner = (slug: string, of = safe) => [
  ...argvOf`sign ${slug} --outcome p2 --safe ${of} --as-owner --json`,
]
interface Parts {
  readonly digest: Hex
  readonly signatures: { readonly owner: Address; signature: string }[]
}
const listed = async ({ run }: Awaited<ReturnType<typeof machine>>) =>
  JSON.parse((await run('journal', 'list', '--json')).stdout).authorizations as object[]

describeWith(['Safe contracts'], '--safe', () => {
  beforeAll(startWithSafe)
  test('two owners on two machines: exit 8 and a file, then the signature that the Safe takes, which is admitted and executed', async () => {
    const [one, two] = [await machine(keys[2]), await machine(keys[0])]
    const slug = questionOf()
    const first = await one.run(...asOwner(slug), '-o', one.parts)
    expect(first.code, first.stderr).toBe(8)
    expect(lastErrorOf(first)).toMatchObject({
      code: 'safe_below_threshold',
      exit_code: 8,
      retryable: true,
    })
    expect(lastErrorOf(first).detail).toContain(
      `1 of 2 owners of Safe ${safe} have signed (${owners[2]})`,
    )
    const parts = JSON.parse(await readFile(one.parts, 'utf8'))
    expect((await stat(one.parts)).mode & 0o777).toBe(0o600)
    expect(parts).toMatchObject({ schema: 'proposer.safe-parts/1', safe, threshold: 2 })
    expect(parts.signatures).toMatchObject([{ owner: owners[2] }])
    expect(await listed(one)).toMatchObject([
      { state: 'offered', proposer: safe, owners_signed: [owners[2]] },
    ])

    const second = await two.run(...asOwner(slug), '--parts', one.parts)
    expect(second.code, second.stderr).toBe(0)
    const { payload, signer, digest } = JSON.parse(second.stdout)
    expect([signer, digest, payload.proposer]).toEqual([safe, parts.digest, safe])
    const sorted = [...owners.slice(0, 1), ...owners.slice(2)].sort()
    expect(payload.signature).toHaveLength(2 + 2 * 130)
    const halves = [payload.signature.slice(2, 132), payload.signature.slice(132)]
    expect(halves.indexOf(parts.signatures[0].signature.slice(2))).toBe(
      sorted.indexOf(owners[2] as Address),
    )

    const sent = await two.run(
      'submit',
      slug,
      '--outcome',
      'p2',
      '--safe',
      safe,
      '--wait',
      '--json',
    )
    expect(sent.code, sent.stderr).toBe(0)
    expect(JSON.parse(sent.stdout)).toMatchObject({ outcome: 'accepted', status: 'executed' })
    const brought = await one.run('sign', slug, '--safe', safe, '--signature', payload.signature)
    expect(brought.code, brought.stderr).toBe(0)
    const replayed = await one.run('submit', slug, '--outcome', 'p2', '--safe', safe, '--json')
    expect(replayed.code, replayed.stderr).toBe(0)
    expect(JSON.parse(replayed.stdout)).toMatchObject({ outcome: 'replayed' })
    for (const own of [one, two]) expect((await own.run('journal', 'verify')).code).toBe(0)
  })

  test('contract §9: the terms of another owner are held to the defaults of this machine; beyond them each needs its flag', async () => {
    const [one, two] = [await machine(keys[0]), await machine(keys[1])]
    const slug = questionOf()
    const terms = argvOf`--amount 5000usdc --deadline 300d`
    const first = await one.run(...asOwner(slug), ...terms, '-o', one.parts)
    expect(first.code, first.stderr).toBe(8)
    const { deadline } = JSON.parse(await readFile(one.parts, 'utf8'))
    const sign = async (...flags: string[]) => {
      const ran = await two.run(...asOwner(slug), '--parts', one.parts, ...flags)
      return ran.code === 0 ? ran.code : [ran.code, lastErrorOf(ran).code, lastErrorOf(ran).hint]
    }
    const large = ['--max-amount', '5000usdc']
    const long = ['--deadline', deadline]
    expect(await sign(...long)).toEqual([
      2,
      'amount_above_cap',
      expect.stringContaining('--max-amount 5000000000raw'),
    ])
    expect(await sign(...long, '--max-amount', '4999usdc')).toContain('amount_above_cap')
    const late = await sign(...large)
    expect(late).toEqual([2, 'deadline_above_cap', expect.stringContaining(long.join(' '))])
    expect(await listed(two)).toEqual([])
    expect(await sign(...long, ...large)).toBe(0)
  })

  test('owners at one machine: the journal holds the parts; the same owner again counts once, and submit sends what the last one completes', async () => {
    const desk = await machine(keys[1])
    const slug = questionOf()
    expect((await desk.run(...asOwner(slug))).code).toBe(8)
    const again = await desk.run(...asOwner(slug))
    expect([again.code, lastErrorOf(again).detail]).toEqual([
      8,
      expect.stringContaining('1 of 2 owners'),
    ])
    const [, ...rest] = asOwner(slug)
    await desk.use(keys[2] as Hex)
    const sent = await desk.run('submit', ...rest)
    expect(sent.code, sent.stderr).toBe(0)
    expect(JSON.parse(sent.stdout)).toMatchObject({ outcome: 'accepted' })
  })

  test('R5: no part shows in what is listed or bundled', async () => {
    const desk = await machine(keys[1])
    const slug = questionOf()
    await desk.run(...asOwner(slug), '-o', desk.parts)
    const { signatures } = JSON.parse(await readFile(desk.parts, 'utf8')) as Parts
    const part = signatures[0]?.signature.slice(2, 60) ?? ''
    expect(part).toHaveLength(58)
    for (const argv of [
      argvOf`journal list --json`,
      ['journal', 'export'],
      argvOf`support-bundle -o -`,
      argvOf`doctor --safe ${safe} --json`,
      ['reconcile', slug, '--json'],
    ]) {
      const { stdout, stderr } = await desk.run(...argv)
      expect([argv[0], `${stdout}${stderr}`.includes(part)]).toEqual([argv[0], false])
      expect(`${stdout}${stderr}`.length).toBeGreaterThan(50)
    }
  })

  test('an owner who is removed in between no longer counts, and the Safe says who can sign', async () => {
    const own = await fundedSafe()
    const desk = await machine(keys[2])
    const slug = questionOf()
    expect((await desk.run(...asOwner(slug, own))).code).toBe(8)
    await contracts.removeOwner(own, owners[1] as Address, owners[2] as Address, 2)
    await desk.use(keys[0] as Hex)
    const after = await desk.run(...asOwner(slug, own))
    expect(after.code, after.stderr).toBe(8)
    expect(lastErrorOf(after).detail).toContain(
      `1 of 2 owners of Safe ${own} have signed (${owners[0]})`,
    )
    expect(lastErrorOf(after).detail).toContain(owners[1])
    expect(lastErrorOf(after).detail).not.toContain(owners[2])
    await desk.use(keys[2] as Hex)
    const gone = await desk.run(...asOwner(slug, own))
    expect([gone.code, lastErrorOf(gone).code]).toEqual([2, 'not_an_owner'])
    await desk.use(keys[1] as Hex)
    expect((await desk.run(...asOwner(slug, own))).code).toBe(0)
  })

  test('a stranger, another answer, another Safe or chain, a part with one byte changed or of the bare digest: named, nothing journaled as signed', async () => {
    const [one, two] = [await machine(keys[0]), await machine(stranger)]
    const slug = questionOf()
    await one.run(...asOwner(slug), '-o', one.parts)
    const text = await readFile(one.parts, 'utf8')
    const parts = JSON.parse(text) as Parts & Record<string, unknown>
    const change = async (changed: object) => {
      const file = join(two.home, 'changed.json')
      await writeFile(file, JSON.stringify({ ...parts, ...changed }))
      return file
    }
    const refusal = async (file: string, argv = asOwner(slug)) => {
      const ran = await two.run(...argv, '--parts', file)
      expect(ran.code, ran.stderr).toBe(2)
      return lastErrorOf(ran)
    }
    const yes = asOwner(slug).map((word) => (word === 'p2' ? 'p1' : word))
    expect(await refusal(one.parts, yes)).toMatchObject({ code: 'payload_changed' })
    expect(await listed(two)).toEqual([])
    expect(await refusal(one.parts)).toMatchObject({ code: 'not_an_owner' })
    await two.use(keys[1] as Hex)
    expect(await refusal(await change({ safe: owners[0] }))).toMatchObject({ code: 'other_safe' })
    expect(await refusal(await change({ chain_id: 137 }))).toMatchObject({
      code: 'other_chain',
      detail: expect.stringContaining('on chain 137'),
    })
    expect(await refusal(await change({ digest: 'x' }))).toMatchObject({ code: 'invalid_parts' })
    const [{ signature = '' } = {}] = parts.signatures
    const flipped = `${signature.slice(0, 9)}${signature[9] === '0' ? '1' : '0'}${signature.slice(10)}`
    const bare = await privateKeyToAccount(keys[0] as Hex).sign({ hash: parts.digest })
    for (const [made, detail] of [
      [flipped, /not an owner|no signature/],
      [bare, new RegExp(`owner ${owners[0]} signed the bare digest`)],
      ['0x12', /no signature of a key/],
    ] as const)
      expect(
        await refusal(await change({ signatures: [{ owner: owners[0], signature: made }] })),
      ).toMatchObject({ code: 'bad_signature', detail: expect.stringMatching(detail) })
    expect(await listed(two)).toMatchObject([{ state: 'offered' }])
    const other = await two.run(...yes)
    expect([other.code, lastErrorOf(other).code]).toEqual([5, 'authorization_open'])
    const right = await two.run(...asOwner(slug), '--parts', one.parts)
    expect(right.code, right.stderr).toBe(0)
  })

  test('a signature of all parts from elsewhere: one owner short, in the wrong order, of the bare digest: the Safe refuses, and the reason is said', async () => {
    const desk = await machine()
    const slug = questionOf()
    const given = await desk.run(
      'sign',
      slug,
      '--outcome',
      'p2',
      '--safe',
      safe,
      '--typed-data',
      '--json',
    )
    expect(given.code, given.stderr).toBe(0)
    const { digest } = JSON.parse(given.stdout) as { digest: Hex }
    const { document } = safeMessage({ chainId: dev.chain_id, safe }, digest)
    const [a, b] = [...owners.slice(0, 2)].sort()
    const keyOf = (owner: Address | undefined) => keys[owners.indexOf(owner as Address)] as Hex
    const part = (owner: Address | undefined) =>
      privateKeyToAccount(keyOf(owner)).signTypedData(document as WalletDocument)
    const bare = await privateKeyToAccount(keyOf(a)).sign({ hash: digest })
    const join_ = (...all: Hex[]) => `0x${all.map((one) => one.slice(2)).join('')}`
    const [first, second] = [await part(a), await part(b)]
    for (const [signature, why] of [
      [first, '1 of 2 owners have signed'],
      [join_(second, first), 'sorted by owner'],
      [join_(bare, second), `owner ${a} signed the bare digest`],
      [join_(first, first), 'signed twice'],
    ] as const) {
      const ran = await desk.run('sign', slug, '--safe', safe, '--signature', signature, '--json')
      expect([ran.code, lastErrorOf(ran).code]).toEqual([2, 'bad_signature'])
      expect(lastErrorOf(ran).detail).toContain(why)
    }
    expect(await listed(desk)).toMatchObject([{ state: 'offered' }])
    const right = await desk.run(
      'sign',
      slug,
      '--safe',
      safe,
      '--signature',
      join_(first, second),
      '--json',
    )
    expect(right.code, right.stderr).toBe(0)
  })

  test('what is no Safe on this chain is named, and doctor tells what a Safe is', async () => {
    const desk = await machine(keys[0])
    const slug = questionOf()
    const bareSafe = await contracts.newSafe(owners, 2, false)
    for (const [of, why] of [
      [addressOf(stranger), `no contract at it on chain ${dev.chain_id}`],
      [dev.trust.permit2, 'does not answer as a Safe'],
      [bareSafe, 'no fallback handler'],
    ] as const) {
      const doctor = await desk.run('doctor', '--safe', of, '--as-owner', '--json')
      expect(doctor.code).toBe(2)
      const { checks } = JSON.parse(doctor.stdout) as {
        checks: { id: string; detail: string; result: string }[]
      }
      expect(checks.find(({ id }) => id === 'safe')).toMatchObject({
        result: 'fail',
        detail: expect.stringContaining(why),
      })
    }
    const ours = await desk.run('doctor', '--safe', safe, '--as-owner', '--json')
    const { checks } = JSON.parse(ours.stdout) as { checks: { id: string }[] }
    expect(checks.find(({ id }) => id === 'safe')).toMatchObject({
      result: 'pass',
      detail: expect.stringContaining('2 of 3 owners'),
    })
    const alone = await desk.run('sign', slug, '--outcome', 'p2', '--safe', safe, '--json')
    expect([alone.code, lastErrorOf(alone).code]).toEqual([2, 'owner_needed'])
    const swallowed = await desk.run('sign', '--safe', safe, '--as-owner', slug, '--json')
    expect([swallowed.code, lastErrorOf(swallowed).detail]).toEqual([
      2,
      expect.stringContaining(slug),
    ])
    const offline = await shop.runHere(asOwner(slug), { ...desk.env, PROPOSER_RPC_URL: '' })
    expect([offline.code, lastErrorOf(offline).code]).toEqual([2, 'no_rpc_url'])
    expect(await listed(desk)).toEqual([])
  })

  test('a Safe that a Safe owns: what has no key is named, and the whole signature, which the outer Safe takes, can be attached', async () => {
    const outer = await fundedSafe([owners[0] as Address, safe])
    const [slug, desk] = [questionOf(), await machine(keys[0])]
    const short = await desk.run(...asOwner(slug, outer))
    expect([short.code, lastErrorOf(short)]).toMatchObject([
      2,
      { code: 'contract_owner', detail: expect.stringContaining(`${safe} is a contract`) },
    ])
    expect(lastErrorOf(short).hint).toContain(`--safe ${outer} --typed-data`)
    const doctor = await desk.run('doctor', '--safe', outer, '--json')
    expect(doctor.stdout).toContain('1 of 2 have a key')
    const mixed = await fundedSafe([...owners.slice(0, 2), safe])
    const named = asOwner(slug, mixed).map((word) =>
      word === '--as-owner' ? `${word}=${safe}` : word,
    )
    const asSafe = await desk.run(...named)
    expect([asSafe.code, lastErrorOf(asSafe).code]).toEqual([2, 'contract_owner'])
    const elseNamed = named.map((word) => word.replace(safe, owners[1] ?? ''))
    const wrongKey = await desk.run(...elseNamed)
    expect([wrongKey.code, lastErrorOf(wrongKey).code]).toEqual([2, 'wrong_signer'])
    expect(await listed(desk)).toEqual([])
    const half = await desk.run(...asOwner(slug, mixed), '-o', desk.parts)
    expect([half.code, lastErrorOf(half).detail]).toEqual([
      8,
      expect.stringMatching(`1 of ${owners[1]}$`),
    ])

    const other = questionOf()
    const flags = argvOf`--outcome p2 --safe ${outer}`
    const given = await desk.run('sign', other, ...flags, '--typed-data', '--json')
    const { digest } = JSON.parse(given.stdout) as { digest: Hex }
    const sign = (at: number, of: Address, message: Hex) =>
      privateKeyToAccount(keys[at] as Hex).signTypedData(
        safeMessage({ chainId: dev.chain_id, safe: of }, message).document as WalletDocument,
      )
    const inner = await contracts.messageData(outer, digest)
    const byInner = [...owners.slice(0, 2)]
      .sort()
      .map((owner) => sign(owners.indexOf(owner), safe, inner))
    const dynamic = (await Promise.all(byInner)).map((part) => part.slice(2)).join('')
    const word = (value: number) => value.toString(16).padStart(64, '0')
    const byContract = `${safe.slice(2).padStart(64, '0')}${word(130)}00`
    const byKey = (await sign(0, outer, digest)).slice(2)
    const both =
      owners[0] !== undefined && owners[0] < safe ? [byKey, byContract] : [byContract, byKey]
    const whole = `0x${both.join('')}${word(dynamic.length / 2)}${dynamic}`
    const attached = await desk.run('sign', other, '--safe', outer, '--signature', whole, '--json')
    expect(attached.code, attached.stderr).toBe(0)
    const parts = JSON.parse(await readFile(desk.parts, 'utf8')) as Parts
    const signatures = [{ owner: safe, signature: `0x${byContract}` }]
    await writeFile(desk.parts, JSON.stringify({ ...parts, signatures }))
    await desk.use(keys[1] as Hex)
    const brought = await desk.run(...asOwner(slug, mixed), '--parts', desk.parts)
    expect([brought.code, lastErrorOf(brought)]).toMatchObject([
      2,
      { code: 'bad_signature', detail: expect.stringContaining(`owner ${safe} is a contract`) },
    ])
  })

  test('what comes next is named: by reconcile and by a second answer for a half-signed Safe, and by commands that know no Safe', async () => {
    const [slug, desk] = [questionOf(), await machine(keys[0])]
    expect((await desk.run(...asOwner(slug))).code).toBe(8)
    const next = `proposer sign ${slug} --outcome p2 --safe ${safe} --as-owner`
    const reconciled = await desk.run('reconcile', slug, '--json')
    expect(JSON.parse(reconciled.stdout).authorizations).toMatchObject([
      {
        journal: { state: 'offered' },
        next: {
          command: next,
          text: expect.stringContaining(`one owner of the Safe signed it (${owners[0]})`),
        },
      },
    ])
    expect((await desk.run('reconcile', slug)).stdout).toContain('--parts <file>')
    const yes = asOwner(slug).map((word) => (word === 'p2' ? 'p1' : word))
    const second = await desk.run(...yes)
    expect([second.code, lastErrorOf(second).hint]).toEqual([5, expect.stringContaining(next)])
    for (const [verb, hint] of [
      ['batch sign', '`proposer sign <identifier>'],
      ['batch submit', '`proposer sign <identifier>'],
      ['run', '`proposer sign <identifier>'],
      ['revoke', '--print'],
      ['funds approve', '--print'],
      ['payouts claim', '--print'],
    ] as const) {
      const ran = await desk.run(...verb.split(' '), 'x', '--safe', safe, '--json')
      expect([verb, ran.code, lastErrorOf(ran)]).toMatchObject([
        verb,
        2,
        { code: 'usage', hint: expect.stringContaining(hint) },
      ])
    }
  })

  testWith(
    ['Chromium'],
    'an owner signs in the browser: the wallet gets the SafeMessage, and the page says what it is for',
    async () => {
      const desk = await machine(keys[0])
      const slug = questionOf()
      expect((await desk.run(...asOwner(slug))).code).toBe(8)
      const browser = await openBrowser()
      const context = await browser.newContext()
      const asked = await injectWallet(
        context,
        honestProvider(keys[1] as Hex, dev.rpc_url, dev.chain_id),
      )
      try {
        const running = shop.start([...asOwner(slug), '--browser'], { env: desk.env })
        await running.said(/http:\/\/127\S+\//)
        const page = await context.newPage()
        await page.goto(/http:\/\/127[\w.:/-]+/.exec(running.stderr())?.[0] ?? '')
        await page.getByRole('button', { name: 'Use Test Wallet' }).click()
        await page.locator('#summary', { hasText: 'of a Safe, 2 of 3' }).waitFor()
        const { code, stderr } = await running.ended
        expect(code, stderr).toBe(0)
        const document = JSON.parse(
          String(asked.find(({ method }) => method === 'eth_signTypedData_v4')?.params[1]),
        )
        expect(document).toMatchObject({
          primaryType: 'SafeMessage',
          domain: { verifyingContract: safe },
        })
      } finally {
        await browser.close()
      }
    },
  )
})
