/**
 * Rules of the service spec that no caller can see, each with the reason, so that a report says
 * what it does not cover.
 */

export interface Unseen {
  readonly section: string
  readonly says: string
  readonly why: string
}

/** In the order of the spec. */
export const unseenRules: readonly Unseen[] = [
  {
    section: '§1',
    says: 'no guarantee of execution in one chain transaction',
    why: 'a freedom of the service, nothing to break',
  },
  {
    section: '§2.2',
    says: 'p3 needs support in the settlement contract',
    why: 'the pins tell the kind of the requester; the contract itself is on chain',
  },
  {
    section: '§3 rule 1',
    says: 'validation happens after the 202',
    why: 'an answer does not tell what was done before it',
  },
  {
    section: '§3 rule 3',
    says: 'after a round has advanced an old signature is no longer replayed',
    why: 'it takes a dispute on chain',
  },
  {
    section: '§4.1 rule 1',
    says: 'disabled wallets and disabled admission are answered 200 with eligible: false',
    why: 'only the operator can disable them',
  },
  { section: '§4.1 rule 1', says: 'eligibility reserves no slot', why: 'slots are not shown' },
  {
    section: '§4.1 rule 3',
    says: 'a candidate is accepted durably',
    why: 'it takes a crash of the gateway',
  },
  {
    section: '§4.2 rule 1',
    says: 'items are processed with bounded concurrency',
    why: 'the bound is not shown',
  },
  {
    section: '§5',
    says: 'no API key, bearer token or header is needed',
    why: 'no check sends one, so that all of them look at it',
  },
  {
    section: '§6',
    says: 'no outbound events or webhooks',
    why: 'nobody can be seen not to be called',
  },
  {
    section: '§7',
    says: '502, 504: admission may already have committed',
    why: 'said of whatever stands before the gateway',
  },
  {
    section: '§7 rules 1-3',
    says: 'what a caller does after an uncertain outcome',
    why: 'duties of the caller',
  },
  {
    section: '§8 rule 1',
    says: 'the operator can change the defaults',
    why: 'the checks take the budget as the answers tell it',
  },
  {
    section: '§8 rules 3, 5',
    says: 'what preparation and splitting cost',
    why: 'follows from 8-charged-by-item and 8-shared-budget',
  },
  {
    section: '§8 rule 6',
    says: 'clients behind one proxy share the budget',
    why: 'it takes a second client address',
  },
  { section: '§8 rule 7', says: 'size limits but for the signature', why: 'not given' },
]
