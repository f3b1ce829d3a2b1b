import { setTimeout as sleep } from 'node:timers/promises'
import { authorize } from './soak-proposals.js'

/** Answered by nobody in time, or not to be had now: the same bytes again settle it (§7). */
const tries = 20
const recentPayloads = 500

/**
 * The rounds under way and what is expected of them: one candidate of each executed, its rivals
 * `not_selected`. `world` has call, library, verbs, signers, rpcUrl, `unexpected(what, answer)` and
 * `random()`.
 */
export function makeRounds(world) {
  const open = []
  /** Candidates not ended, by id: their round and since when. */
  const pending = new Map()
  /** Payloads sent lately with their candidates, for replays and polls. */
  const recent = []
  const counts = {
    admitted: 0,
    executed: 0,
    not_selected: 0,
    rounds_done: 0,
    asked: 0,
    disputed: 0,
    longest_seconds: 0,
  }

  const add = (questionId, edition = 1, after = undefined) =>
    open.push({ questionId, edition, after })

  /**
   * The contexts of the next rounds whose requests the gateway shows; the others wait for their
   * turn again.
   */
  async function take(count) {
    const entries = open.splice(0, count)
    if (entries.length === 0) return []
    const { status, body } = await world.call('/propose/batch/signing-data', {
      identifiers: entries.map((each) => each.questionId),
    })
    if (status !== 200) {
      open.push(...entries)
      if (status !== 503) world.unexpected('contexts', { status, body })
      return []
    }
    return entries.flatMap((entry, index) => {
      const { signing_data: context, status_code, error } = body.results[index]
      const known = context !== undefined && context.request.timestamp !== entry.after
      if (known) return [{ ...entry, context, candidates: new Set(), executed: 0 }]
      // A new round, or a question that was asked a moment ago: the gateway's view is a block
      // behind.
      if (
        !['request_not_open', 'question_not_found', 'state_unavailable'].includes(
          error?.code ?? 'request_not_open',
        )
      )
        world.unexpected('context', { status: status_code, body: { error } })
      open.push(entry)
      return []
    })
  }

  function admitted(round, id, payload) {
    if (round.candidates.has(id)) return
    round.candidates.add(id)
    counts.admitted += 1
    pending.set(id, { round, sinceMs: performance.now() })
    recent.push({ ...payload, id, questionId: round.questionId })
    if (recent.length > recentPayloads) recent.shift()
  }

  /** Sends one payload by the single route until it is settled. */
  async function submit(round, payload) {
    for (let n = 0; n < tries; n += 1) {
      let answer
      try {
        answer = await world.call(payload.path, payload.body)
      } catch (error) {
        world.unexpected('submit without an answer', { status: 0, body: error.message })
        answer = { status: 503 }
      }
      if (answer.status === 202 || answer.status === 200)
        return admitted(round, answer.body.candidate_id, payload)
      if (answer.status !== 503) return world.unexpected('submit', answer)
      await sleep(1_000)
    }
    world.unexpected('submit', { status: 503, body: 'for a long time' })
  }

  async function submitBatch(rounds, payloads) {
    let left = payloads.map((payload, index) => ({ payload, round: rounds[index] }))
    for (let n = 0; n < tries && left.length > 0; n += 1) {
      const { status, body } = await world.call('/propose/batch', {
        proposals: left.map(({ payload }) => payload.item),
      })
      if (status === 200) {
        left = left.filter(({ payload, round }, index) => {
          const { status_code, candidate, error } = body.results[index]
          if (candidate !== undefined) admitted(round, candidate.candidate_id, payload)
          else if (status_code !== 503)
            world.unexpected('batch item', { status: status_code, body: { error } })
          return status_code === 503
        })
      } else if (status !== 503) return world.unexpected('batch', { status, body })
      if (left.length > 0) await sleep(1_000)
    }
    if (left.length > 0) world.unexpected('batch', { status: 503, body: 'for a long time' })
  }

  const signed = (round, signer, outcome, forger) =>
    authorize(world.library, round.context, signer, outcome, forger)
  const two = () => {
    const first = Math.floor(world.random() * world.signers.length)
    return [world.signers[first], world.signers[(first + 1) % world.signers.length]]
  }

  /**
   * A round by one proposer; `prelude` sees its payload, and the means to make others for the
   * round, before it is sent and after.
   */
  async function single(before = async () => {}, after = async () => {}) {
    const [round] = await take(1)
    if (round === undefined) return
    const [signer, other] = two()
    const payload = signed(round, signer, 'p2')
    const make = {
      other: (outcome) => signed(round, signer, outcome),
      forged: () => signed(round, signer, 'p1', other),
    }
    await before(payload, make)
    await submit(round, payload)
    await after(payload, make)
  }

  /** A round that two proposers want. */
  async function contested() {
    const [round] = await take(1)
    if (round === undefined) return
    const [signer, rival] = two()
    await Promise.all([
      submit(round, signed(round, signer, 'p2')),
      submit(round, signed(round, rival, 'p1')),
    ])
  }

  async function batch(size) {
    const rounds = await take(size)
    if (rounds.length === 0) return
    await submitBatch(
      rounds,
      rounds.map((round) => signed(round, two()[0], 'p1')),
    )
  }

  async function dispute({ questionId, edition, context }) {
    await world.verbs.disputeProposal(world.rpcUrl, questionId)
    counts.disputed += 1
    add(questionId, edition + 1, context.request.timestamp)
  }

  function ended(id, { status, failure }) {
    const { round, sinceMs } = pending.get(id)
    pending.delete(id)
    counts.longest_seconds = Math.max(counts.longest_seconds, (performance.now() - sinceMs) / 1000)
    round.candidates.delete(id)
    if (status === 'executed') {
      counts.executed += 1
      round.executed += 1
    } else if (failure.code === 'not_selected') counts.not_selected += 1
    else world.unexpected('candidate failed', { status: failure.code, body: failure })
    if (round.candidates.size > 0) return
    if (round.executed !== 1)
      world.unexpected('round', { status: round.executed, body: round.questionId })
    counts.rounds_done += 1
    // The first dispute of a question opens a new round, the second goes to the voters (domain
    // §5.1).
    if (round.edition === 1 && world.random() < 0.25) world.go('dispute', dispute(round))
  }

  /** Asks for all candidates that have not ended, a hundred a call. */
  async function poll() {
    const ids = [...pending.keys()]
    for (let start = 0; start < ids.length; start += 100) {
      const candidate_ids = ids.slice(start, start + 100)
      const { status, body } = await world.call('/propose/batch/status', { candidate_ids })
      if (status !== 200) return world.unexpected('batch status', { status, body })
      for (const [index, { candidate, error }] of body.results.entries()) {
        if (candidate === undefined)
          world.unexpected('batch status item', { status: 200, body: { error } })
        else if (['executed', 'failed'].includes(candidate.status))
          ended(candidate_ids[index], candidate)
      }
    }
  }

  /** New questions while fewer than `least` are waiting. */
  async function ask(least) {
    for (let n = 0; n < 5 && open.length < least; n += 1) {
      counts.asked += 1
      const number = counts.asked
      const { text } = world.verbs.exampleQuestion(100_000 + number)
      const { question_id } = await world.verbs.askDevQuestion(world.rpcUrl, {
        slug: `soak-${number}`,
        text,
      })
      add(question_id)
    }
  }

  const oldestSeconds = () => {
    const [first] = pending.values()
    return first === undefined ? 0 : (performance.now() - first.sinceMs) / 1000
  }
  return { add, single, contested, batch, poll, ask, oldestSeconds, counts, open, pending, recent }
}
