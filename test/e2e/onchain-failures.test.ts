/**
 * Every failure of domain §7 that the gateway can meet on chain, provoked on real contracts: before
 * its transaction is sent, and between sending and mining. What comes out is what GET status and
 * readyz say (contract §5).
 */
import { topics } from '#chain/contracts'
import { devAccount, devAddresses, placedAt } from '#devchain/dev-contracts'
import { ChainError, type Hex } from '#ports'
import {
  devSigner,
  openStillChain,
  openStillGateway,
  type StillChain,
  type StillGateway,
  type Submitted,
} from '#support/reorg-gateway'
import { type Failing, type Tell, type Trouble, troublesOn } from '#support/reorg-troubles'

const admin = devAccount('admin').address
const outsider = devAccount('outsider').address
const executor = devAccount('executor').address
const token = placedAt('Token', devAddresses.token)
const oracle = placedAt('ManagedOracle', devAddresses.oracle)
const permit2 = placedAt('Permit2', devAddresses.permit2)
const signedProposer = placedAt('SignedProposer', devAddresses.signedProposer)

let still: StillChain
let start: Hex
let gateway: StillGateway
let questionId: Hex
let otherQuestionId: Hex
let thirdQuestionId: Hex

beforeAll(async () => {
  still = await openStillChain({ questions: 3, slotsInAnEpoch: 1 })
  const [first, second, third] = still.description.questions
  if (!first || !second || !third) throw new Error('too few questions')
  questionId = first.question_id
  otherQuestionId = second.question_id
  thirdQuestionId = third.question_id
}, 60_000)
afterAll(() => still?.stop())

beforeEach(async () => {
  start = await still.remember()
  gateway = await openStillGateway(still)
})
afterEach(async () => {
  await still.rpc.request('anvil_dropAllTransactions', [])
  await still.back(start)
})

const { failing, operators, roundArgs } = troublesOn(() => ({ still, questionId }))

async function prepare({ given }: Trouble): Promise<void> {
  await given?.()
  gateway = await openStillGateway(still)
  await gateway.turn()
}
const inBlockOfItsOwn: Tell = (...args) => still.act(...args)
const inFront: Tell = async (...args) => {
  await still.ahead(...args)
}
/**
 * Signatures that admission itself refuses come into the ledger by the back door: a gateway before
 * this one may have taken them.
 */
const submit = ({ wish = {}, given }: Trouble) =>
  given === undefined && (wish.key !== undefined || wish.spoil !== undefined)
    ? gateway.admit(questionId, wish)
    : gateway.submit(questionId, wish)

async function expectEnd(
  submitted: Submitted,
  expected: Record<string, unknown>,
  { detail, readiness }: Pick<Failing, 'detail' | 'readiness'>,
) {
  const status = await gateway.status(submitted)
  expect(status).toMatchObject({ status: 'failed', failure: expected })
  expect(status.failure?.detail).toMatch(detail)
  expect(gateway.ledger.slots()).toEqual([])
  if (readiness === undefined) expect(await gateway.readyz()).toEqual({ ready: true, reasons: [] })
}

async function expectReplay(submitted: Submitted, { retryable, heals }: Failing): Promise<void> {
  await heals?.()
  await gateway.pass(3)
  const isAdvanced =
    (await gateway.candidate(submitted)).round.timestamp !==
    String(gateway.view.known(questionId)?.round.timestamp)
  const answer = isAdvanced
    ? { httpStatus: 409, candidateId: undefined }
    : { httpStatus: 200, candidateId: submitted.id }
  expect(await gateway.replay(submitted)).toEqual(answer)
  await gateway.turn()
  await gateway.pass(4)
  expect((await gateway.status(submitted)).status).toBe(retryable ? 'executed' : 'failed')
}

const title = ({ row, why }: Trouble) => `${row}: ${why}`
const cases = (when: Failing['only']) =>
  failing
    .filter(({ only }) => only === undefined || only === when)
    .map((one) => [title(one), one] as const)

describe('domain §7 before sending: validation fails the candidate, and no nonce is taken', () => {
  test.each(cases('before sending'))('%s', async (_title, trouble) => {
    await prepare(trouble)
    const submitted = await submit(trouble)
    await trouble.happens(inBlockOfItsOwn)
    await still.mine(3)
    await gateway.turn()
    await gateway.pass(1)
    const end = { ...trouble, ...trouble.before }
    const { code, retryable, canResubmit, nextAction } = end
    await expectEnd(
      submitted,
      { stage: 'validation', code, retryable, can_resubmit: canResubmit, next_action: nextAction },
      end,
    )
    expect(await gateway.status(submitted)).toMatchObject({ submission: null })
    expect(gateway.ledger.highestNonce(executor)).toBe(-1)
    await expectReplay(submitted, trouble)
  })
})

describe('domain §7 after sending: the transaction reverts, and once that is final the candidate fails with the reason', () => {
  test.each(cases('after sending'))('%s', async (_title, trouble) => {
    await prepare(trouble)
    const submitted = await submit(trouble)
    await gateway.turn()
    expect(await gateway.status(submitted)).toMatchObject({
      status: 'selected',
      submission: { status: 'submitted' },
    })
    await trouble.happens(inFront)
    await gateway.pass(1)
    expect(await gateway.status(submitted)).toMatchObject({
      status: 'selected',
      submission: { status: 'submitted' },
      failure: null,
    })
    await gateway.pass(3)
    const { code, retryable, canResubmit, nextAction } = trouble
    await expectEnd(
      submitted,
      {
        stage: 'confirmation',
        code,
        retryable,
        can_resubmit: canResubmit,
        next_action: nextAction,
      },
      trouble,
    )
    expect(await gateway.status(submitted)).toMatchObject({
      submission: { status: 'reverted', confirmed_at: null, proposal_event_index: null },
    })
    expect(gateway.ledger.highestNonce(executor)).toBe(
      (await still.chain.transactionCount(executor, 'latest')) - 1,
    )
    await expectReplay(submitted, trouble)
  })
})

describe("domain §7, the operator's part: nobody fails, readyz says what to do, and then it goes on", () => {
  test.each(operators.map((one) => [title(one), one] as const))(
    'before sending: %s',
    async (_title, trouble) => {
      const submitted = await gateway.submit(questionId)
      await trouble.happens(inBlockOfItsOwn)
      await still.mine(3)
      await gateway.turn()
      await gateway.pass(1)
      expect(await gateway.status(submitted)).toMatchObject({
        status: 'received',
        submission: null,
        failure: null,
      })
      expect(await gateway.readyz()).toEqual({
        ready: false,
        reasons: [expect.stringMatching(trouble.reason)],
      })
      expect(gateway.ledger.highestNonce(executor)).toBe(-1)
      await trouble.heals?.()
      await gateway.pass(5)
      expect(await gateway.readyz()).toEqual({ ready: true, reasons: [] })
      expect(await gateway.status(submitted)).toMatchObject({ status: 'executed' })
    },
  )

  test.each(
    operators.filter(({ only }) => only === undefined).map((one) => [title(one), one] as const),
  )('after sending: %s', async (_title, trouble) => {
    const submitted = await gateway.submit(questionId)
    await gateway.turn()
    expect(await gateway.status(submitted)).toMatchObject({
      status: 'selected',
      submission: { status: 'submitted' },
    })
    await trouble.happens(inFront)
    await gateway.pass(20)
    const { status, failure } = await gateway.status(submitted)
    expect(failure).toBeNull()
    expect(['validated', 'selected']).toContain(status)
    expect(await gateway.readyz()).toEqual({
      ready: false,
      reasons: [expect.stringMatching(trouble.reason)],
    })
    await trouble.heals?.()
    await gateway.pass(20)
    expect(await gateway.readyz()).toEqual({ ready: true, reasons: [] })
    expect(await gateway.status(submitted)).toMatchObject({
      status: 'executed',
      submission: { status: 'indexed' },
      failure: null,
    })
    expect(gateway.ledger.slots()).toEqual([])
  })
})

describe('domain §2.2: candidates that are sent together, and one of them goes wrong between sending and mining', () => {
  test('the one fails with its own reason, the others are executed, one transaction a round', async () => {
    const [first, second, third] = [
      devSigner('proposer', 0),
      devSigner('proposer', 1),
      devSigner('proposer', 2),
    ]
    const submitted = [
      await gateway.submit(questionId, { by: first }),
      await gateway.submit(otherQuestionId, { by: second }),
      await gateway.submit(thirdQuestionId, { by: third }),
    ] as const
    await gateway.turn()
    const sent = await Promise.all(submitted.map(gateway.status))
    expect(sent.map(({ submission }) => submission?.status)).toEqual([
      'submitted',
      'submitted',
      'submitted',
    ])
    await still.ahead(second.address, token, 'approve', permit2.address, 5n)
    await gateway.pass(10)
    const [one, two, three] = await Promise.all(submitted.map(gateway.status))
    expect(two).toMatchObject({
      status: 'failed',
      failure: {
        code: 'insufficient_allowance',
        stage: 'confirmation',
        next_action: 'approve_permit2',
      },
    })
    for (const done of [one, three])
      expect(done).toMatchObject({
        status: 'executed',
        submission: { status: 'indexed' },
        failure: null,
      })
    expect(gateway.ledger.slots()).toEqual([])
    expect(await gateway.readyz()).toEqual({ ready: true, reasons: [] })
    const logs = await still.chain.logs({
      fromBlock: 0n,
      toBlock: 10n ** 6n,
      addresses: [oracle.address],
      topics: [topics.proposePrice],
    })
    const ours = logs.filter(({ transactionHash }) =>
      [one, three].some((done) => done?.submission?.transaction_hash === transactionHash),
    )
    expect(ours.map(({ logIndex }) => logIndex).sort()).toEqual(
      [one, three].map((done) => done?.submission?.proposal_event_index).sort(),
    )
    expect(logs).toHaveLength(2)
  })
})

describe('domain §7, InvalidNonce, "look for ProposalExecuted first"', () => {
  async function otherRelayer(tell: Tell, submitted: Submitted): Promise<void> {
    const { amount, deadline, nonce, price, proposer, signature } =
      await gateway.candidate(submitted)
    const [requester, identifier, timestamp, ancillaryData] = await roundArgs()
    await tell(
      outsider,
      signedProposer,
      'propose',
      {
        oracle: oracle.address,
        requester,
        identifier,
        timestamp,
        ancillaryData,
        proposedPrice: BigInt(price),
        maxPayment: 0n,
      },
      proposer,
      {
        permitted: { token: token.address, amount: BigInt(amount) },
        nonce: BigInt(nonce),
        deadline: BigInt(deadline),
      },
      signature,
      0n,
    )
  }
  beforeEach(() => still.act(admin, signedProposer, 'addDelegatedProposer', outsider))

  test('after sending: the payload was executed by another relayer just before, and counts as executed, by that transaction', async () => {
    const submitted = await gateway.submit(questionId)
    await gateway.turn()
    const sent = (await gateway.status(submitted)).submission?.transaction_hash
    await otherRelayer(inFront, submitted)
    await gateway.pass(4)
    const { status, submission, failure } = await gateway.status(submitted)
    expect({ status, failure }).toEqual({ status: 'executed', failure: null })
    expect(submission?.transaction_hash).not.toBe(sent)
    const receipt = await still.chain.receipt((submission?.transaction_hash ?? '0x') as Hex)
    expect(receipt?.status).toBe('success')
    expect(receipt?.logs.map(({ logIndex }) => logIndex)).toContain(
      submission?.proposal_event_index,
    )
  })
})

describe('robustness §3: what a real node answers to a transaction, as the table names it', () => {
  async function sent(): Promise<{ raw: Hex; sign(change: object): Promise<Hex> }> {
    const { parseTransaction, keccak256, serializeTransaction } = await import('viem')
    await gateway.submit(questionId)
    await gateway.turn()
    const raw = gateway.ledger.slots()[0]?.attempts[0]?.raw
    if (!raw) throw new Error('nothing was sent')
    const { r: _r, s: _s, yParity: _y, v: _v, ...unsigned } = parseTransaction(raw)
    return {
      raw,
      async sign(change) {
        const transaction = { ...unsigned, ...change, type: 'eip1559' } as Parameters<
          typeof serializeTransaction
        >[0]
        const signature = await devSigner('executor').signDigest(
          keccak256(serializeTransaction(transaction)),
        )
        return serializeTransaction(transaction, {
          r: `0x${signature.slice(2, 66)}`,
          s: `0x${signature.slice(66, 130)}`,
          yParity: signature.endsWith('1c') ? 1 : 0,
        })
      },
    }
  }
  const kindOf = (raw: Hex) =>
    still.chain.send(raw).then(
      () => 'taken',
      (error: unknown) => (error instanceof ChainError ? error.kind : error),
    )

  test('a mined one again, the same fee under the same nonce, no funds, too little gas, a gap', async () => {
    const { raw, sign } = await sent()
    expect([
      await kindOf(raw),
      await kindOf(await sign({ data: '0x' })),
      await kindOf(await sign({ nonce: 1, value: 10n ** 30n })),
      await kindOf(await sign({ nonce: 1, gas: 20_000n })),
      await kindOf(await sign({ nonce: 5 })),
    ]).toEqual([
      'already_known',
      'replacement_underpriced',
      'insufficient_funds',
      'refused',
      'taken',
    ])
    await still.mine()
    expect(await kindOf(raw)).toBe('nonce_too_low')
  })
})
