import fc from 'fast-check'
import { encodeErrorResult } from 'viem'
import { causeOf, decodeRevert, type RevertContext, revertAbi } from '#chain/reverts'
import type { Hex } from '#ports'
import { failures } from '#protocol/codes'
import { reverts } from '#support/dev-chain-vectors'

const cases = new Map(reverts.reverts.map((item) => [item.name, item]))
const rawOf = (name: string): Hex => {
  const found = cases.get(name)
  if (found === undefined) throw new Error(`no case ${name}`)
  return found.raw
}
const { signed_proposer: signedProposer = '0x', oracle = '0x' } = reverts.addresses

const context: RevertContext = {
  stage: 'simulation',
  signedProposer,
  oracle,
  hasCustomWhitelist: false,
  neededRaw: 750n,
  balanceRaw: 750n,
  allowanceRaw: 750n,
  roundState: 1,
}

function judged(name: string, more: Partial<RevertContext> = {}): string {
  const cause = causeOf(rawOf(name), { ...context, ...more })
  return cause.kind === 'operator' ? `operator ${cause.code}` : `${cause.code} ${cause.retryable}`
}

test.each(reverts.reverts)(
  'domain §7: $name: name and arguments are those recorded',
  ({ raw, error, args }) => {
    const reason = decodeRevert(raw)
    expect(reason.name).toBe(error ?? 'empty')
    expect(reason.args).toEqual(args)
  },
)

test('domain §7: the text names the error as a person would read it', () => {
  expect(decodeRevert(rawOf('balance_too_low')).text).toBe('"TRANSFER_FROM_FAILED"')
  expect(decodeRevert(rawOf('oracle_has_no_code')).text).toBe('no revert data')
  expect(decodeRevert(rawOf('deadline_zero')).text).toBe('SignatureExpired(0)')
})

test('domain §7: data of no known error, or broken data of a known one, is unknown and quoted', () => {
  expect(decodeRevert('0xdeadbeef')).toEqual({
    name: 'unknown',
    args: ['0xdeadbeef'],
    text: 'unknown error 0xdeadbeef',
  })
  expect(decodeRevert('0x08c379a000').name).toBe('unknown')
  expect(decodeRevert('0x01').name).toBe('unknown')
  expect(decodeRevert(`0xdeadbeef${'00'.repeat(500)}`).text.length).toBeLessThan(200)
})

test('R17, R20: the words of an error are shown on one line, cut and without control characters; the argument stays whole', () => {
  const words = `no\u202e\n${'x'.repeat(100_000)}`
  const reason = decodeRevert(
    encodeErrorResult({ abi: revertAbi, errorName: 'Error', args: [words] }),
  )
  expect(reason.args).toEqual([words])
  expect(reason.text).toMatch(/^"no x+"$/)
  expect(reason.text.length).toBeLessThanOrEqual(202)
})

test('domain §7: no bytes make it throw', () => {
  const selectors = reverts.reverts.map(({ raw }) => raw.slice(2, 10))
  const bytes = fc.uint8Array({ maxLength: 200 }).map((data) => Buffer.from(data).toString('hex'))
  fc.assert(
    fc.property(fc.constantFrom('', ...selectors), bytes, (selector, data) => {
      expect(decodeRevert(`0x${selector}${data}`).text).not.toBe('')
      expect(['candidate', 'operator']).toContain(causeOf(`0x${selector}${data}`, context).kind)
    }),
  )
})

test('domain §7: every error of the list survives encoding and decoding', () => {
  for (const item of revertAbi) {
    const sample: Record<string, unknown> = {
      address: oracle,
      bytes32: `0x${'11'.repeat(32)}`,
      uint256: 7n,
      string: 'text',
      bytes4: '0x01020304',
    }
    const args = item.inputs.map(({ type }) => sample[type])
    const raw = encodeErrorResult({ abi: [item], errorName: item.name, args } as never)
    expect(decodeRevert(raw)).toMatchObject({ name: item.name, args: args.map(String) })
  }
})

const short = { balanceRaw: 749n }
const wallet = { proposerHasCode: true }
const custom = { hasCustomWhitelist: true }
const unowned = 'proposer_not_whitelisted_sp_not_owner'
const unlisted = 'signed_proposer_not_whitelisted'
test.each<[name: string, more: Partial<RevertContext>, expected: string]>([
  ['balance_too_low', short, 'insufficient_balance true'],
  ['permit2_allowance_too_low', { allowanceRaw: 749n }, 'insufficient_allowance true'],
  ['token_paused', {}, 'token_blocked true'],
  ['balance_too_low', { ...short, allowanceRaw: 749n }, 'insufficient_balance true'],
  // Domain §2.1: a funding failure does not hide a round that is taken.
  ['already_proposed_and_no_funds', { balanceRaw: 0n, roundState: 2 }, 'request_not_open false'],
  // A paused request, not the operator.
  [unlisted, custom, 'proposer_not_whitelisted true'],
  // Of anybody but SignedProposer it says nothing of whitelists.
  [unowned, { signedProposer: oracle }, 'simulation_reverted true'],
  // Domain §3.3: what a wallet with code answers is a refused signature, unless it was seen to accept.
  ['eip1271_wallet_reverts', wallet, 'signature_not_authorized false'],
  ['owner_contract_without_1271', wallet, 'signature_not_authorized false'],
  ['oracle_blacklisted', { ...wallet, walletAccepts: true }, 'token_blocked true'],
  ['balance_too_low', { ...wallet, balanceRaw: 0n }, 'insufficient_balance true'],
  // Under a custom list that lists SignedProposer it is forged, else a paused request.
  [unlisted, { ...custom, ...wallet }, 'proposer_not_whitelisted true'],
  [unlisted, { ...custom, ...wallet, spenderListed: false }, 'proposer_not_whitelisted true'],
  [unlisted, { ...custom, ...wallet, spenderListed: true }, 'signature_not_authorized false'],
  // The stage names the code where the cause has none of its own.
  ['wrong_token', { stage: 'execution' }, 'execution_reverted false'],
])('contract §5: %s with %o is %s', (name, more, expected) => {
  expect(judged(name, more)).toBe(expected)
})

test.each([
  ['unknown_request', 'request_not_open false'],
  ['wrong_token', 'simulation_reverted false'],
  ['deadline_expired', 'permit_expired false'],
  ['exact_replay_after_success', 'permit_nonce_used false'],
  ['nonce_invalidated_by_owner', 'permit_nonce_used false'],
  ['price_altered', 'signature_not_authorized false'],
  ['signature_v_0_or_1', 'signature_not_authorized false'],
  ['signature_63_bytes', 'signature_not_authorized false'],
  ['eip1271_wrong_magic', 'signature_not_authorized false'],
  ['oracle_blacklisted', 'token_blocked true'],
  ['fee_on_transfer_token', 'token_blocked false'],
  ['amount_below_bond_modern_token', 'bond_above_permit false'],
  ['amount_below_bond_legacy_token', 'bond_above_permit false'],
  ['custom_bond_raised_after_signing', 'bond_above_permit false'],
  ['proposer_not_whitelisted_sp_not_owner', 'proposer_not_whitelisted true'],
  ['direct_proposal_unlisted', 'proposer_not_whitelisted true'],
  ['already_proposed_by_another', 'request_not_open false'],
  ['settled', 'request_not_open false'],
  ['too_early_price_on_event_based', 'simulation_reverted false'],
  ['oracle_has_no_code', 'simulation_reverted false'],
])('contract §5: %s is %s', (name, expected) => {
  expect(judged(name)).toBe(expected)
})

test.each([
  ['caller_lacks_role', 'operator executor_role_missing'],
  ['payment_exceeds_max_payment', 'operator payment_not_zero'],
  ['payment_above_amount', 'operator payment_not_zero'],
  ['signed_proposer_not_whitelisted', 'operator signed_proposer_not_whitelisted'],
])('contract §5: %s is the fault of the %s and fails no candidate', (name, expected) => {
  expect(judged(name)).toBe(expected)
})

const forged: [string, Hex][] = [
  ['AccessControlUnauthorizedAccount', rawOf('caller_lacks_role')],
  ['PaymentExceedsMaxPayment', rawOf('payment_exceeds_max_payment')],
  ['Panic', rawOf('payment_above_amount')],
  ['SenderNotWhitelisted', rawOf('signed_proposer_not_whitelisted')],
]
const sound: Partial<RevertContext> = {
  proposerHasCode: true,
  executorHasRole: true,
  spenderListed: true,
}
const about = (raw: Hex, more: Partial<RevertContext>) => causeOf(raw, { ...context, ...more })

test.each(forged)('domain §3.3: %s, refuted: the wallet refused the signature', (name, raw) => {
  const cause = about(raw, sound)
  expect(cause).toMatchObject({
    kind: 'candidate',
    code: 'signature_not_authorized',
    retryable: false,
  })
  expect(cause.detail).toContain(name)
})

test.each(forged)(
  'domain §3.3: %s by a wallet that accepts when it is asked alone: its own revert, dead until the wallet changes',
  (name, raw) => {
    for (const [stage, code] of [
      ['simulation', 'simulation_reverted'],
      ['execution', 'execution_reverted'],
    ] as const) {
      const cause = about(raw, { ...sound, walletAccepts: true, stage })
      expect(cause).toMatchObject({ kind: 'candidate', code, retryable: false })
      expect(cause.detail).toContain(name)
      expect(cause.detail).toContain('wallet')
    }
  },
)

test.each(forged)(
  'domain §3.3: %s where nobody read role and list: not believed either',
  (_name, raw) => {
    expect(about(raw, { proposerHasCode: true }).kind).toBe('candidate')
  },
)

test("domain §3.3: what our reads confirm is the operator's, wallet or not", () => {
  for (const walletAccepts of [true, false]) {
    const wallet = { ...sound, walletAccepts }
    expect(judged('caller_lacks_role', { ...wallet, executorHasRole: false })).toBe(
      'operator executor_role_missing',
    )
    expect(judged('signed_proposer_not_whitelisted', { ...wallet, spenderListed: false })).toBe(
      'operator signed_proposer_not_whitelisted',
    )
  }
})

test('domain §3.3: payment is always 0: no read can confirm that too much was asked for', () => {
  const failing = { ...sound, executorHasRole: false, spenderListed: false }
  expect(judged('payment_exceeds_max_payment', failing)).toBe('signature_not_authorized false')
  expect(judged('payment_above_amount', failing)).toBe('signature_not_authorized false')
})

test('domain §3.3: without code at the proposer nobody can forge, and the data alone decide', () => {
  const plain = { proposerHasCode: false, executorHasRole: true, spenderListed: true }
  for (const [, raw] of forged) expect(about(raw, plain).kind).toBe('operator')
})

test('domain §3.3: no bytes of a wallet blame the operator while role and list are in order', () => {
  const selectors = [
    ...forged.map(([, raw]) => raw.slice(2)),
    ...reverts.reverts.map(({ raw }) => raw.slice(2, 10)),
  ]
  const bytes = fc.uint8Array({ maxLength: 200 }).map((data) => Buffer.from(data).toString('hex'))
  fc.assert(
    fc.property(
      fc.constantFrom(...selectors),
      bytes,
      fc.boolean(),
      (selector, data, walletAccepts) => {
        expect(about(`0x${selector}${data}`, { ...sound, walletAccepts }).kind).toBe('candidate')
      },
    ),
  )
})

test('contract §5: empty data with the gas spent is more than was estimated', () => {
  expect(judged('out_of_gas', { stage: 'execution', gasExhausted: true })).toBe(
    'operator out_of_gas',
  )
  const spent = { ...context, stage: 'execution', gasExhausted: true } as const
  // No setting raises the limit: none is told of.
  expect(causeOf('0x', spent).detail).toBe(
    'The transaction ran out of gas: it used more than was estimated before it was sent.',
  )
  expect(causeOf('0x', { ...spent, proposerHasCode: true }).detail).toMatch(
    /the proposer's wallet used more than was estimated/,
  )
})

test('contract §5: bridged USDC.e has its own words for a low allowance', () => {
  const raw = encodeErrorResult({
    abi: revertAbi,
    errorName: 'Error',
    args: ['ERC20: transfer amount exceeds allowance'],
  })
  expect(causeOf(raw, context)).toMatchObject({
    kind: 'candidate',
    code: 'bond_above_permit',
    retryable: false,
  })
})

test.each(['ERC20: transfer amount exceeds balance', 'TRANSFER_FROM_FAILED', 'no'])(
  'domain §7: a bond above the permit is the cause, whatever the words of the token: %s',
  (words) => {
    const raw = encodeErrorResult({ abi: revertAbi, errorName: 'Error', args: [words] })
    const short = { ...context, bondRaw: context.neededRaw + 1n, roundState: 1 }
    for (const proposerHasCode of [false, true]) {
      expect(causeOf(raw, { ...short, proposerHasCode })).toMatchObject({
        code: 'bond_above_permit',
        retryable: false,
      })
    }
    expect(causeOf(raw, { ...short, bondRaw: context.neededRaw })).not.toMatchObject({
      code: 'bond_above_permit',
    })
    expect(causeOf(raw, { ...short, roundState: 2 })).not.toMatchObject({
      code: 'bond_above_permit',
    })
  },
)

test('contract §5: an unknown error leaves the authorization live: its nonce is unspent', () => {
  expect(causeOf('0xdeadbeef', context)).toMatchObject({
    code: 'simulation_reverted',
    retryable: true,
  })
})

test('retryable agrees with the table of contract §5 wherever that says yes or no', () => {
  for (const { raw } of reverts.reverts) {
    const cause = causeOf(raw, context)
    if (cause.kind === 'operator') continue
    const { retryable } = failures[cause.code]
    if (retryable !== undefined) expect(cause.retryable).toBe(retryable)
    expect(cause.detail).toMatch(/^[A-Zp].*\.$/)
  }
})

test('domain §7: no case recorded as dead is called retryable, none recorded as curable is called dead', () => {
  const known: Record<string, Partial<RevertContext>> = {
    eip1271_wallet_reverts: { proposerHasCode: true },
    already_proposed_and_no_funds: { roundState: 2 },
    out_of_gas: { gasExhausted: true },
  }
  const different: Record<string, string> = {
    eip7702_delegate_without_1271:
      'contract §5 calls every refused signature dead, this curable one too',
    eip7702_delegate_other_owner:
      'contract §5 calls every refused signature dead, this curable one too',
    proposer_blacklisted: 'the bytes are those of a paused token, which may be unpaused',
    payment_plus_bond_above_amount:
      'the bytes are those of a bond above the permit, as our payment is always 0',
    multicall_one_bad_item: 'recorded of the whole multicall, judged of its bad item',
    multicall_same_nonce_twice: 'recorded of the whole multicall, judged of its second item',
    multicall_same_request_twice: 'recorded of the whole multicall, judged of its second item',
  }
  const wrong = reverts.reverts
    .filter(({ contract }) => contract === 'signed_proposer')
    .filter(({ name, raw, same_payload: same }) => {
      const cause = causeOf(raw, { ...context, ...known[name] })
      if (cause.kind === 'operator') return same !== 'after_fix'
      return cause.retryable === (same === 'no' || same === 'done')
    })
    .map(({ name }) => name)
  expect(wrong.sort()).toEqual(Object.keys(different).sort())
})
