import { type Exchange, refusalOf } from '#gateway/front/routes'
import { createSlugs, namedBySlugs, type Slugs } from '#gateway/view/slugs'
import { ChainError, type Clock, type Hex, type SlugLookUp, SlugLookUpError } from '#ports'
import { wireError } from '#protocol/refusal'
import { chainView } from '#support/chain-view'
import { createFakeChain } from '#support/fake-chain'
import { ask, questionText } from '#support/fake-events'
import { createFakeView, makeQuestion, signedBody, signedItem, termsOf } from '#support/fake-view'
import { codeOf, openFront } from '#support/front'

const id = (digits: string): Hex => `0x${digits.repeat(32)}`

interface Source {
  readonly clock: Clock & { monotonic: number }
  readonly slugs: Slugs
  readonly meanings: Map<string, Hex | SlugLookUpError | Error>
  readonly asked: string[]
  hold(): () => void
  impatient: boolean
}

function source(meanings: Record<string, Hex> = {}): Source {
  let gate: Promise<void> = Promise.resolve()
  const clock = {
    monotonic: 1_000,
    nowMs: () => 0,
    monotonicMs: () => clock.monotonic,
    sleep: (_ms: number, signal?: AbortSignal) =>
      made.impatient
        ? Promise.resolve()
        : new Promise<void>((_resolve, reject) =>
            signal?.addEventListener('abort', () => reject(signal.reason), { once: true }),
          ),
  }
  const asked: string[] = []
  const lookUp: SlugLookUp = async (slug) => {
    asked.push(slug)
    await gate
    const found = made.meanings.get(slug)
    if (found instanceof Error) throw found
    return found
  }
  const made: Source = {
    clock,
    slugs: createSlugs(clock, lookUp),
    meanings: new Map(Object.entries(meanings)),
    asked,
    impatient: false,
    hold() {
      let open: () => void = () => undefined
      gate = new Promise((resolve) => {
        open = resolve
      })
      return open
    },
  }
  return made
}
const settled = () => new Promise((resolve) => setImmediate(resolve))
const down = () => new SlugLookUpError('connection refused (ECONNREFUSED)')

describe('look-ups', () => {
  test('contract §2: a slug is looked up once and then comes from memory; many who ask at once cause one look-up', async () => {
    const { slugs, asked } = source({ rain: id('a1') })
    expect(slugs.known('rain')).toBeUndefined()
    expect(await Promise.all(Array.from({ length: 8 }, () => slugs.idOf('rain')))).toEqual(
      Array(8).fill(id('a1')),
    )
    expect(slugs.known('rain')).toBe(id('a1'))
    expect(await slugs.idOf('rain')).toBe(id('a1'))
    expect(asked).toEqual(['rain'])
  })

  test('contract §2: a miss is remembered for ten seconds and no longer', async () => {
    const { slugs, asked, clock, meanings } = source()
    expect(await slugs.idOf('rain')).toBeUndefined()
    meanings.set('rain', id('a1'))
    clock.monotonic += 9_999
    expect(await slugs.idOf('rain')).toBeUndefined()
    expect(asked).toEqual(['rain'])
    clock.monotonic += 1
    expect(await slugs.idOf('rain')).toBe(id('a1'))
  })

  test('a new meaning holds soon, and nobody waits for it', async () => {
    const { slugs, asked, clock, meanings } = source({ rain: id('a1') })
    await slugs.idOf('rain')
    meanings.set('rain', id('b2'))
    clock.monotonic += 59_999
    expect(slugs.known('rain')).toBe(id('a1'))
    expect(asked).toHaveLength(1)
    clock.monotonic += 1
    expect(slugs.known('rain')).toBe(id('a1'))
    expect(await slugs.idOf('rain')).toBe(id('a1'))
    await settled()
    expect(asked).toHaveLength(2)
    expect(slugs.known('rain')).toBe(id('b2'))
  })

  test('after ten minutes without a question the new meaning is waited for', async () => {
    const { slugs, clock, meanings } = source({ rain: id('a1') })
    await slugs.idOf('rain')
    meanings.set('rain', id('b2'))
    clock.monotonic += 600_000
    expect(slugs.known('rain')).toBeUndefined()
    expect(await slugs.idOf('rain')).toBe(id('b2'))
  })

  test('a slug that nobody knows any more is a miss', async () => {
    const { slugs, clock, meanings } = source({ rain: id('a1') })
    await slugs.idOf('rain')
    meanings.clear()
    clock.monotonic += 60_000
    expect(slugs.known('rain')).toBe(id('a1'))
    await settled()
    expect(slugs.known('rain')).toBeUndefined()
    expect(await slugs.idOf('rain')).toBeUndefined()
  })

  test('R16: while the source is down unknown slugs are unavailable, and known ones go on without being asked for all the time', async () => {
    const { slugs, asked, clock, meanings } = source({ rain: id('a1') })
    await slugs.idOf('rain')
    meanings.set('rain', down())
    meanings.set('snow', down())
    await expect(slugs.idOf('snow')).rejects.toMatchObject({
      code: 'slug_unavailable',
      meta: { httpStatus: 503, retryable: true },
    })
    clock.monotonic += 60_000
    expect(slugs.known('rain')).toBe(id('a1'))
    await settled()
    expect(slugs.known('rain')).toBe(id('a1'))
    clock.monotonic += 9_999
    expect(slugs.known('rain')).toBe(id('a1'))
    await settled()
    expect(asked).toEqual(['rain', 'snow', 'rain'])
    clock.monotonic += 100_000
    expect(slugs.known('rain')).toBe(id('a1'))
    await settled()
    clock.monotonic += 10_000_000
    expect(slugs.known('rain')).toBeUndefined()
    expect(await slugs.idOf('rain')).toBe(id('a1'))
    expect(slugs.known('rain')).toBe(id('a1'))
    meanings.set('snow', id('c3'))
    expect(await slugs.idOf('snow')).toBe(id('c3'))
  })

  test('an answer that takes too long is none, and the look-up is told to end', async () => {
    const setting = source({ rain: id('a1') })
    let ended = false
    const slugs = createSlugs(setting.clock, (_slug, signal) => {
      signal.addEventListener('abort', () => {
        ended = true
      })
      return new Promise(() => undefined)
    })
    setting.impatient = true
    await expect(slugs.idOf('rain')).rejects.toMatchObject({
      detail: expect.stringContaining('timed out'),
    })
    expect(ended).toBe(true)
  })

  test('R17: no more than 250 look-ups in any ten seconds; over it an unknown slug is unavailable', async () => {
    const { slugs, asked, clock } = source()
    for (let n = 0; n < 125; n++) await slugs.idOf(`a-${n}`)
    clock.monotonic += 9_000
    for (let n = 0; n < 125; n++) await slugs.idOf(`b-${n}`)
    await expect(slugs.idOf('one-more')).rejects.toMatchObject({ code: 'slug_unavailable' })
    clock.monotonic += 1_000
    for (let n = 0; n < 125; n++) await slugs.idOf(`c-${n}`)
    await expect(slugs.idOf('one-more')).rejects.toMatchObject({ code: 'slug_unavailable' })
    expect(asked).toHaveLength(375)
  })

  test('R17: no more than 32 look-ups at once', async () => {
    const setting = source()
    const open = setting.hold()
    const first = Array.from({ length: 32 }, (_, n) => setting.slugs.idOf(`a-${n}`))
    await expect(setting.slugs.idOf('one-more')).rejects.toMatchObject({ code: 'slug_unavailable' })
    open()
    await Promise.all(first)
    expect(await setting.slugs.idOf('one-more')).toBeUndefined()
  })

  test('R17: the least recent of 20,000 meanings is forgotten', async () => {
    const setting = source()
    for (let n = 0; n <= 20_000; n++) {
      if (n % 250 === 0) setting.clock.monotonic += 10_000
      setting.meanings.set(`s-${n}`, id('a1'))
      await setting.slugs.idOf(`s-${n}`)
    }
    for (const slug of ['s-0', 's-1']) setting.meanings.set(slug, down())
    setting.clock.monotonic += 10_000
    await expect(setting.slugs.idOf('s-0')).rejects.toMatchObject({ code: 'slug_unavailable' })
    expect(await setting.slugs.idOf('s-1')).toBe(id('a1'))
  })

  test('after a 429 nobody is asked for as long as it says', async () => {
    const { slugs, asked, clock, meanings } = source({ snow: id('a1') })
    meanings.set('rain', new SlugLookUpError('the answer has status 429', 7_000))
    await expect(slugs.idOf('rain')).rejects.toMatchObject({ code: 'slug_unavailable' })
    clock.monotonic += 6_999
    await expect(slugs.idOf('snow')).rejects.toMatchObject({ code: 'slug_unavailable' })
    expect(asked).toEqual(['rain'])
    clock.monotonic += 1
    expect(await slugs.idOf('snow')).toBe(id('a1'))
  })

  test('a bug of ours is not taken for an outage', async () => {
    const { slugs, meanings } = source()
    meanings.set('rain', new TypeError('a bug'))
    await expect(slugs.idOf('rain')).rejects.toThrow(TypeError)
  })
})

async function watched(meanings: (ids: { rain: Hex; snow: Hex }) => Record<string, Hex>) {
  const chain = createFakeChain()
  const ids = { rain: ask(chain, questionText('Rain?')), snow: ask(chain, questionText('Snow?')) }
  chain.mine(5)
  const entries = [{ questionId: ids.snow, slug: 'registered' }]
  const inner = chainView(chain, { entries })
  await inner.poll()
  const setting = source(meanings(ids))
  const view = namedBySlugs(inner, setting.slugs, setting.clock)
  return { ...setting, chain, ids, view, inner, setting }
}

test('domain §5.4: the question is the one that the chain confirms, and then comes from memory by slug as by id', async () => {
  const { view, ids, asked } = await watched(({ rain }) => ({ rain }))
  expect(view.known('rain')).toBeUndefined()
  const question = await view.question('rain')
  expect(question).toMatchObject({ questionId: ids.rain, round: { state: 'requested' } })
  expect(view.known('rain')).toBe(question)
  expect(view.known(ids.rain)).toBe(question)
  expect(asked).toEqual(['rain'])
})

test('R9: an id that the chain does not confirm is no question, and the slug is asked for again after ten seconds', async () => {
  const { view, ids, clock, meanings, asked } = await watched(() => ({ rain: id('ee') }))
  expect(await view.question('rain')).toBeUndefined()
  expect(view.known('rain')).toBeUndefined()
  meanings.set('rain', ids.rain)
  clock.monotonic += 9_999
  expect(await view.question('rain')).toBeUndefined()
  expect(asked).toHaveLength(1)
  clock.monotonic += 1
  expect(await view.question('rain')).toMatchObject({ questionId: ids.rain })
})

test("domain §5.4: the registry's slugs and question ids are never asked for outside", async () => {
  const { view, ids, asked } = await watched(({ rain }) => ({ registered: rain }))
  expect(await view.question('registered')).toMatchObject({ questionId: ids.snow })
  expect(view.known('registered')?.questionId).toBe(ids.snow)
  expect(await view.question(ids.rain)).toMatchObject({ questionId: ids.rain })
  expect(await view.question(id('ee'))).toBeUndefined()
  expect(asked).toEqual([])
})

test('R16: with the source down, ids, registered slugs and known slugs go on, and the gateway is ready', async () => {
  const { view, ids, meanings } = await watched(({ rain }) => ({ rain }))
  await view.question('rain')
  meanings.set('rain', down())
  meanings.set('fog', down())
  expect(view.known('rain')?.questionId).toBe(ids.rain)
  expect(await view.question('registered')).toBeDefined()
  expect(await view.question(ids.snow)).toBeDefined()
  await expect(view.question('fog')).rejects.toMatchObject({ code: 'slug_unavailable' })
  expect(view.faults()).toEqual([])
})

test('contract §2: a chain that does not answer is told as such, and look-up and read together have one limit', async () => {
  const { view, chain, setting } = await watched(({ rain, snow }) => ({ rain, snow }))
  chain.fault('call', 'unavailable')
  await expect(view.question('rain')).rejects.toMatchObject({ code: 'state_unavailable' })
  await setting.slugs.idOf('snow')
  chain.call = () => new Promise(() => undefined)
  setting.impatient = true
  await expect(view.question('snow')).rejects.toMatchObject({
    code: 'state_unavailable',
    cause: expect.any(ChainError),
  })
})

test('R5: the refusal on the wire is state_unavailable and blames nobody but the look-up', async () => {
  const { view, meanings } = await watched(() => ({}))
  meanings.set('fog', down())
  const error: unknown = await view.question('fog').catch((reason: unknown) => reason)
  const refusal = refusalOf({ requestId: 'request' } as Exchange, error)
  expect(refusal).toMatchObject({ status: 503, code: 'state_unavailable', retryAfterSeconds: 2 })
  expect(refusal && wireError(refusal).detail).toMatch(/^slug fog cannot be looked up now/)
})

describe('candidates of a slug that changes its meaning', () => {
  const first = makeQuestion('first')
  const second = makeQuestion('second')

  async function opened() {
    const setting = source({ moving: first.questionId })
    const view = namedBySlugs(createFakeView([first, second]), setting.slugs, setting.clock)
    const front = await openFront({ parts: { view } })
    const [wallet] = front.wallets
    const body = await signedBody(wallet, first)
    const accepted = await front.post('/v1/proposals/moving', body)
    expect(accepted.status).toBe(202)
    const { candidate_id, status_url } = (await accepted.json()) as {
      candidate_id: string
      status_url: string
    }
    const move = async () => {
      setting.meanings.set('moving', second.questionId)
      setting.clock.monotonic += 600_000
      expect(await setting.slugs.idOf('moving')).toBe(second.questionId)
    }
    return {
      ...setting,
      front,
      wallet,
      body,
      candidateId: candidate_id,
      statusUrl: status_url,
      move,
    }
  }

  test('§4.1 rule 4: its status is found by the slug as long as that names its question, and by question id always', async () => {
    const { front, candidateId, statusUrl, move } = await opened()
    expect((await front.get(`/v1/proposals/moving/status/${candidateId}`)).status).toBe(200)
    await move()
    const moved = await front.get(`/v1/proposals/moving/status/${candidateId}`)
    expect(moved.status).toBe(404)
    expect(await moved.json()).toMatchObject({
      error: {
        code: 'candidate_not_found',
        detail: expect.stringContaining('use the question id'),
      },
    })
    expect((await front.get(statusUrl)).status).toBe(200)
  })

  test('R16: with the source down its status by a slug that is not known is 503, by question id 200', async () => {
    const { front, candidateId, statusUrl, meanings } = await opened()
    meanings.set('forgotten', down())
    expect(await codeOf(await front.get(`/v1/proposals/forgotten/status/${candidateId}`))).toBe(
      'state_unavailable',
    )
    expect((await front.get(statusUrl)).status).toBe(200)
  })

  test('R2, R7: the exact payload by the slug again is neither admitted for the other question nor refused as never seen', async () => {
    const { front, body, candidateId, move } = await opened()
    expect((await front.post('/v1/proposals/moving', body)).status).toBe(200)
    await move()
    const again = await front.post('/v1/proposals/moving', body)
    expect(again.status).toBe(409)
    expect(await again.json()).toMatchObject({
      error: { code: 'candidate_conflict', detail: expect.stringContaining(candidateId) },
    })
    const byId = await front.post(`/v1/proposals/${first.questionId}`, body)
    expect(byId.status).toBe(200)
    expect(await byId.json()).toMatchObject({ candidate_id: candidateId })
  })

  test('without that signature the candidate is not named: a payload that does not authorize stays 403', async () => {
    const { front, wallet, body, candidateId, move } = await opened()
    await move()
    const forged = { ...body, signature: (await signedBody(wallet, second)).signature }
    const refused = await front.post('/v1/proposals/moving', forged)
    expect(refused.status).toBe(403)
    expect(await refused.text()).not.toContain(candidateId)
  })

  test('R22: in a batch too the slug is only a spelling of the question that it names now', async () => {
    const { front, wallet, move } = await opened()
    await move()
    const item = await signedItem(wallet, second, 'p1', { nonce: termsOf(wallet).nonce })
    const answer = await front.post('/propose/batch', {
      proposals: [{ ...item, identifier: 'moving' }, item],
    })
    expect(await answer.json()).toMatchObject({
      results: [{ status_code: 202 }, { status_code: 200 }],
    })
  })
})
