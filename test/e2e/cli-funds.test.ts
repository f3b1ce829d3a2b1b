import { join } from 'node:path'
import { erc20Abi } from '#chain/contracts'
import { proposeCalldata } from '#chain/propose'
import { createRoundReader } from '#chain/questions'
import { readContract } from '#chain/reading'
import { contractsOf, type Trust } from '#client/trust/trust'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import {
  type DevAccount,
  devAccount,
  devAddresses,
  devRpc,
  sendAsDev,
} from '#devchain/dev-contracts'
import { disputeProposal, proposeDirectly } from '#devchain/dev-verbs'
import { createChain } from '#io/rpc/rpc'
import type { Chain, Hex } from '#ports'
import { priceOf } from '#protocol/proposal'
import { argvOf } from '#support/argv'
import {
  type Argv,
  answerOf,
  errorOf,
  proposerHome,
  type Ran,
  type RunOptions,
  run,
} from '#support/cli'
import { scriptedGateway } from '#support/scripted-gateway'

let dev: DevChain
let chain: Chain & { close(): Promise<void> }
let home: string
let wallet: DevAccount
let next = 0
let slug: string
let env: Record<string, string>

beforeAll(async () => {
  dev = await startDevChain({ questions: 20, proposers: 19 })
  chain = createChain([dev.rpcUrl])
})
afterAll(async () => {
  await chain?.close()
  await dev?.stop()
})
beforeEach(async () => {
  wallet = devAccount('proposer', next)
  slug = questionOf(next)
  next++
  home = proposerHome(dev.description.trust, wallet.private_key)
  env = { PROPOSER_RPC_URL: dev.rpcUrl, PROPOSER_KEY_FILE: join(home, 'key') }
})

function questionOf(n: number): string {
  const question = dev.description.questions[n]
  if (!question) throw new Error(`the dev chain has no question ${n}`)
  return question.slug
}

const ask = (argv: Argv, more: RunOptions = {}) => run(home, argv, { env, chain, ...more })
interface SignedPayload {
  readonly outcome: 'p1' | 'p2'
  readonly permit: { readonly amount: string; readonly nonce: string; readonly deadline: string }
  readonly signature: Hex
}
async function sign(
  outcome: string,
  ...more: string[]
): Promise<{ journal_id: string; payload: SignedPayload }> {
  return answerOf(await ask(argvOf`sign ${slug} --outcome ${outcome} --json ${more}`)) as never
}
type Token = Record<string, string> & { reserved_by: { journal_id: string; amount: string }[] }
async function funds(): Promise<Token> {
  const { tokens } = answerOf(await ask('funds --json')) as { tokens: Token[] }
  const [token] = tokens
  if (!token) throw new Error('no token')
  return token
}
type Entry = Record<'journal' | 'chain' | 'next', Record<string, unknown>> & {
  journal_id: string
  settled: string | null
}
async function reconcile(): Promise<{
  round: Record<string, unknown>
  authorizations: Entry[]
  not_looked_at: string[]
}> {
  return answerOf(await ask(['reconcile', slug, '--json'])) as never
}
const states = async () =>
  (answerOf(await ask('journal list --json')).authorizations as Record<string, unknown>[]).map(
    ({ journal_id, state, reason, code }) => ({
      journal_id,
      state,
      reason,
      code,
    }),
  )
async function allowance(): Promise<bigint> {
  const head = await chain.block('latest')
  return readContract(chain, head?.number ?? 0n, devAddresses.token, erc20Abi, 'allowance', [
    wallet.address,
    devAddresses.permit2,
  ])
}
async function execute({ payload }: { payload: SignedPayload }): Promise<void> {
  const trust = dev.description.trust as unknown as Trust
  const round = await createRoundReader(chain, contractsOf(trust)).read(trust.slugs[slug] as Hex)
  if (!round) throw new Error('no round')
  const terms = { price: priceOf[payload.outcome], ...payload.permit }
  const data = proposeCalldata({
    request: round,
    token: round.token.address,
    proposer: wallet.address,
    terms,
    signature: payload.signature,
  })
  await sendAsDev(devRpc(dev.rpcUrl), [
    { from: devAccount('executor').address, to: devAddresses.signedProposer, data },
  ])
}
async function untilFinal(): Promise<void> {
  const head = await chain.block('latest')
  for (;;) {
    const finalized = await chain.block('finalized')
    if ((finalized?.number ?? 0n) >= (head?.number ?? 0n)) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

describe('contract §6: funds', () => {
  test('raw in JSON: balance, allowance, what open authorizations reserve, and what is free', async () => {
    const before = await funds()
    expect(before).toMatchObject({
      decimals: 6,
      reserved: '0',
      free: before.balance,
      token: devAddresses.token,
      reserved_by: [],
    })
    const { journal_id } = await sign('p2')
    const after = await funds()
    expect(after).toMatchObject({
      reserved: '750000000',
      reserved_by: [{ journal_id, amount: '750000000' }],
    })
    expect(BigInt(after.free ?? '')).toBe(BigInt(before.balance ?? '') - 750_000_000n)
    expect(after.spendable).toBe(after.free)
  })

  test.each<readonly [string, Partial<Chain>, string]>([
    ['a tip of 50,000 gwei', { tip: async () => 50_000n * 10n ** 9n }, '1000 gwei per gas'],
    ['25 million gas', { estimateGas: async () => 25_000_000n }, '1 POL'],
  ])(
    'robustness §6: a node that asks for %s is refused before anything is signed, unless --max-fee allows it',
    async (_name, lie, cap) => {
      const tip = async () => 50n * 10n ** 9n
      const lying = { ...chain, tip, ...lie }
      const approve = argvOf`funds approve --amount 5raw --dry-run --json`
      const refused = errorOf(await ask(approve, { chain: lying }))
      expect(refused).toMatchObject({ code: 'fee_above_cap', exit_code: 2 })
      expect(refused.detail).toContain(`the cap is ${cap}`)
      expect(refused.detail).toMatch(/[\d.]+ POL of fees/)
      const [, allowed = ''] = /--max-fee (\d+raw)/.exec(String(refused.hint)) ?? []
      expect((await ask([...approve, '--max-fee', allowed], { chain: lying })).code).toBe(0)
      const less = `${BigInt(allowed.slice(0, -3)) / 2n}raw`
      const short = errorOf(await ask([...approve, '--max-fee', less], { chain: lying }))
      expect(short.code).toBe('fee_above_cap')
      answerOf(await ask('config set max-fee 1 --json'))
      expect(errorOf(await ask(approve)).code).toBe('fee_above_cap')
      expect((await ask([...approve, '--max-fee', '0.5pol'])).code).toBe(0)
      expect(errorOf(await ask([...approve, '--max-fee', '5'])).hint).toContain('5pol')
    },
  )

  test('contract §6: approve sends the approval once it is agreed to; --print and --dry-run send nothing', async () => {
    const printed = answerOf(await ask('funds approve --amount 5raw --print --json'))
    expect(printed).toMatchObject({
      schema: 'proposer.calldata/1',
      chain_id: dev.chainId,
      from: wallet.address,
      transactions: [
        { to: devAddresses.token, value: '0', data: expect.stringMatching(/^0x095ea7b3/) },
      ],
    })
    expect(answerOf(await ask('funds approve --amount 5raw --dry-run --json'))).toMatchObject({
      dry_run: true,
      transactions: [
        { gas: expect.stringMatching(/^\d+$/), max_cost_wei: expect.stringMatching(/^\d+$/) },
      ],
    })
    const unasked = await ask('funds approve --amount 5raw --json')
    expect(errorOf(unasked)).toMatchObject({
      code: 'confirmation_needed',
      exit_code: 2,
      hint: expect.stringContaining('--yes'),
    })
    const declined = await ask('funds approve --amount 5raw', {
      interactive: true,
      stdin: 'n\n',
    })
    expect(declined.code).toBe(2)
    expect(declined.stderr).toContain('warning: this lowers the allowance, which is unlimited now')
    expect(await allowance()).toBe(2n ** 256n - 1n)

    const approved = answerOf(await ask('funds approve --amount 5raw --yes --json'))
    expect(approved).toMatchObject({
      schema: 'proposer.approval/1',
      amount: '5',
      allowance: '5',
      transaction_hash: expect.stringMatching(/^0x/),
    })
    expect(await allowance()).toBe(5n)
    expect(answerOf(await ask('funds approve --amount 5raw --json'))).toMatchObject({
      transaction_hash: null,
    })
    expect(await funds()).toMatchObject({ allowance: '5', spendable: '5' })
    const raised = await ask('funds approve', { interactive: true, stdin: 'y\n' })
    expect(raised.stdout).toContain('unlimited')
    expect(raised.stderr).not.toContain('lowers')
    expect(await allowance()).toBe(2n ** 256n - 1n)
  })

  test('contract §9: init approves once it is agreed to, and run again it sends nothing', async () => {
    const here = argvOf`init --profile default --gateway http://127.0.0.1:1`
    const init = [...here, '--approve', '15000usdc']
    const count = { method: 'eth_getTransactionCount', params: [wallet.address, 'latest'] }
    const sent = async () => Number((await devRpc(dev.rpcUrl).batch([count]))[0])
    const before = await sent()
    const declined = await ask(init, { interactive: true, stdin: 'n\n' })
    expect([declined.code, declined.stderr]).toEqual([2, expect.stringContaining('declined')])
    expect([await sent(), await allowance()]).toEqual([before, 2n ** 256n - 1n])

    const approvalOf = (ran: Ran) =>
      (JSON.parse(ran.stdout) as { steps: { step: string; result: string }[] }).steps.find(
        ({ step }) => step === 'approval',
      )
    const agreed = await ask([...init, '--yes', '--json'])
    expect(approvalOf(agreed), agreed.stderr).toMatchObject({ result: 'done' })
    expect([await sent(), await allowance()]).toEqual([before + 1, 15_000_000_000n])
    expect(await funds()).toMatchObject({ allowance: '15000000000' })

    for (const again of [init, here]) {
      const ran = await ask([...again, '--json'])
      expect(approvalOf(ran), ran.stderr).toBeDefined()
    }
    expect(await sent()).toBe(before + 1)
  })

  test.each([
    [argvOf`funds approve --amount lots`, 'bad_number'],
    [argvOf`funds approve --token 0x${'1'.repeat(40)}`, 'token_needed'],
    [['funds', 'spend'], 'usage'],
  ])('contract §6: %j exits 2 with %s', async (argv, code) => {
    expect(errorOf(await ask([...argv, '--json']))).toMatchObject({ code, exit_code: 2 })
  })
})

describe('contract §6: revoke', () => {
  test('cancels several at once, journals it from finalized state, and the question can be signed for again', async () => {
    const first = await sign('p2')
    const { journal_id: second } = answerOf(
      await ask(argvOf`sign ${questionOf(19)} --outcome p1 --json`),
    )
    const ids = [first.journal_id, String(second)]
    const printed = answerOf(await ask(argvOf`revoke ${ids} --print --json`)) as {
      transactions: { data: string }[]
    }
    expect(printed.transactions.map(({ data }) => data.slice(0, 10))).toEqual([
      '0x3ff9dcb1',
      '0x3ff9dcb1',
    ])
    const revoked = answerOf(await ask(argvOf`revoke ${ids} --yes --json`))
    expect(revoked).toMatchObject({
      schema: 'proposer.revocation/1',
      results: ids.map((journal_id) => ({ journal_id, outcome: 'revoked' })),
      final: true,
    })
    expect(await states()).toEqual(
      ids.map((journal_id) => ({
        journal_id,
        state: 'closed',
        reason: 'nonce_used',
        code: 'nonce_invalidated',
      })),
    )
    expect(await funds()).toMatchObject({ reserved: '0' })
    expect(errorOf(await ask(argvOf`revoke ${first.journal_id} --yes --json`))).toMatchObject({
      code: 'authorization_closed',
    })
    const anew = await sign('p1', '--supersede', first.journal_id)
    expect(anew.journal_id).not.toBe(first.journal_id)
    await expect(execute(first)).rejects.toThrow(/InvalidNonce/)
    await execute(anew)
  })

  test('R8: after --supersede the older one is revoked, and the newer one executes', async () => {
    const older = await sign('p2')
    const newer = await sign('p1', '--supersede', older.journal_id)
    const [old, fresh] = (await reconcile()).authorizations
    expect(old).toMatchObject({
      journal_id: older.journal_id,
      next: { action: 'revoke', command: `proposer revoke ${older.journal_id}` },
    })
    expect(fresh).toMatchObject({ journal_id: newer.journal_id, next: { action: 'submit' } })
    answerOf(await ask(argvOf`revoke ${older.journal_id} --yes --json`))
    await execute(newer)
    await untilFinal()
    const after = (await reconcile()).authorizations
    expect(after.map(({ journal }) => journal.reason)).toEqual(['nonce_used', 'executed'])
  })

  test('an unknown id, and a race that the executor has won, are told as such', async () => {
    expect(errorOf(await ask('revoke 0123456789ab-1 --yes --json'))).toMatchObject({
      code: 'unknown_journal_id',
      exit_code: 2,
    })
    const signed = await sign('p2')
    await execute(signed)
    const late = answerOf(await ask(argvOf`revoke ${signed.journal_id} --yes --json`))
    expect(late).toMatchObject({
      transactions: [],
      results: [{ journal_id: signed.journal_id, outcome: 'executed' }],
    })
    expect(await states()).toMatchObject([{ state: 'closed', reason: 'executed' }])
  })
})

describe('contract §6: reconcile', () => {
  test('R14: an execution shows at once and is journaled once it is final, with its transaction and event index', async () => {
    const signed = await sign('p2')
    await execute(signed)
    await untilFinal()
    const dry = answerOf(await ask(argvOf`reconcile ${slug} --dry-run --json`))
    expect(dry).toMatchObject({ authorizations: [{ settled: 'executed' }] })
    expect(await states()).toMatchObject([{ state: 'signed' }])
    const { round, authorizations, not_looked_at } = await reconcile()
    expect(round).toMatchObject({
      state: 'proposed',
      proposal: {
        proposer: wallet.address,
        price: priceOf.p2,
        final: true,
        by_signature: true,
        transaction_hash: expect.stringMatching(/^0x/),
      },
    })
    expect(authorizations).toMatchObject([
      {
        journal: { state: 'closed', reason: 'executed' },
        chain: { nonce_spent_final: true },
        settled: 'executed',
        next: { action: 'none' },
      },
    ])
    expect(not_looked_at).toEqual([expect.stringContaining('no gateway')])
    const exported = JSON.parse((await ask('journal export')).stdout)
    const { proposal } = round as { proposal: { transaction_hash: string; event_index: number } }
    expect(exported).toMatchObject({
      state: 'closed',
      transaction_hash: proposal.transaction_hash,
      event_index: proposal.event_index,
    })
  })

  test('a competing proposal is named with its price; after the dispute it is safe to sign anew', async () => {
    await sign('p2')
    await proposeDirectly(dev.rpcUrl, slug, 0n)
    const taken = await reconcile()
    expect(taken.round).toMatchObject({
      state: 'proposed',
      proposal: { proposer: devAccount('rival').address, price: '0', by_signature: false },
    })
    expect(taken.authorizations).toMatchObject([
      { journal: { state: 'signed' }, settled: null, next: { action: 'wait_for_new_round' } },
    ])
    await disputeProposal(dev.rpcUrl, slug)
    const reopened = await reconcile()
    expect(reopened.round).toMatchObject({ state: 'requested', proposal: null })
    expect(reopened.authorizations).toMatchObject([
      { chain: { round_over: true }, next: { action: 'sign_anew' } },
    ])
    const shown = await ask(['reconcile', slug])
    expect(shown.stdout).toContain('safe to sign again')
  })
})

test('contract §6: a wallet that can propose passes every check of the doctor', async () => {
  const { url, fetch } = scriptedGateway()
  const told = answerOf(await ask(argvOf`doctor --json --gateway ${url}`, { fetch }))
  const results = (told.checks as { id: string; result: string }[]).map(({ id, result }) => [
    id,
    result,
  ])
  expect(Object.fromEntries(results)).toEqual({
    ...Object.fromEntries(
      ['trust', 'account', 'key_files', 'journal_folder', 'budget', 'journal', 'open'].map((id) => [
        id,
        'pass',
      ]),
    ),
    ...{ gateway: 'pass', clock: 'skip', eligibility: 'pass' },
    ...Object.fromEntries(
      ['rpc', 'trust_on_chain', 'balance', 'allowance', 'account_code'].map((id) => [id, 'pass']),
    ),
  })
})
