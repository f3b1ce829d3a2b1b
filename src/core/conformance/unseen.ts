/** Rules that no caller can see, each with the reason, in the order of the spec. */
export const unseenRules = [
  '§1: no guarantee of execution in one chain transaction (left to the service: there is nothing to break)',
  '§2.2: p3 needs support in the settlement contract (the pins give the kind of the requester; the contract itself is on chain)',
  '§3 rule 1: validation happens after the 202 (a response does not show what was done before it)',
  '§3 rule 3: after a round has advanced, an old signature is no longer replayed (requires a dispute on chain)',
  '§4.1 rule 1: disabled wallets and disabled admission are answered 200 with eligible: false (only the operator can disable them)',
  '§4.1 rule 1: eligibility reserves no slot (slots are not visible)',
  '§4.1 rule 3: a candidate is accepted durably (requires a crash of the gateway)',
  '§4.2 rule 1: items are processed with bounded concurrency (the bound is not visible)',
  '§5: no API key, bearer token or header is needed (no check sends one, so every check covers it)',
  '§6: no outbound events or webhooks (the absence of calls cannot be observed)',
  '§7: 502, 504: admission may already have committed (applies to whatever is in front of the gateway)',
  '§7 rules 1-3: what a caller does after an uncertain outcome (duties of the caller)',
  '§8 rule 1: the operator can change the defaults (the checks use the budget that the responses report)',
  '§8 rules 2, 3: what each call is charged (measuring it requires a rate limit that nobody else uses)',
  '§8 rule 6: clients behind one proxy share the budget (requires a second client address)',
  '§8 rule 7: size limits but for the signature (the spec gives none)',
].map((line) => {
  const [, section = '', says = '', why = ''] = /^(§[^:]+): (.+) \((.+)\)$/.exec(line) ?? []
  return { section, says, why }
})
