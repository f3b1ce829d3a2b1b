/**
 * Receipts end to end on the dev chain: submitted, kept, proven again offline, exported to somebody
 * who has nothing but the keys; and the key rotated under a running gateway (contract §9).
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { workshop } from '#support/processes'
import { type Client, makeClient, questionOf, type ServeReady } from '#support/proposing'

const shop = workshop()

describe('serve with receipts', () => {
  let ready: ServeReady
  let client: Client
  let folder: string
  const file = (name: string) => join(folder, name)
  const admit = async (question: number) => {
    const { slug } = questionOf(ready.dev, question)
    const { code, answer } = await client.ask('submit', slug, '--outcome', 'p2')
    expect(code).toBe(0)
    return String(answer.journal_id)
  }
  const fail = async (...argv: string[]) => {
    const { code, ended } = await client.ask(...argv)
    const told = ended.stderr.trim().split('\n').at(-1) ?? '{}'
    return [code, (JSON.parse(told) as { error?: { code: string } }).error?.code]
  }

  beforeAll(async () => {
    folder = await shop.folder()
    const receipts = JSON.stringify({ key_file: file('receipt-key.json') })
    const server = shop.start([
      ...argvOf`serve --dev --port 0 --questions 6 --json`,
      ...['--set', `receipts=${receipts}`],
    ])
    ready = await server.line<ServeReady>()
    client = await makeClient(shop, ready.dev, {
      PROPOSER_GATEWAY: ready.url,
      PROPOSER_RPC_URL: ready.dev.rpc_url,
    })
  })

  test('contract §9: a file proves to others what was admitted when; with any part changed it is exit 2', async () => {
    const id = await admit(1)
    expect(await fail('journal', 'show', id, '--verify')).toEqual([2, 'receipt_unknown_key'])
    expect(await client.ask('trust', 'pin', '--receipts', '--yes')).toMatchObject({ code: 0 })
    const exported = await client.ask('receipt', 'export', id, '--reveal-signature')
    expect(exported.answer).toMatchObject({ schema: 'proposer.receipt/1' })
    const receipt = exported.answer as unknown as {
      request: { body: string }
      answer: { body: string; status: number }
    }
    await writeFile(file('receipt.json'), JSON.stringify(receipt))
    const listed = await fetch(`${ready.url}/.well-known/http-message-signatures-directory`)
    await writeFile(file('keys.json'), await listed.text())
    const argv = ['receipt', 'verify', file('receipt.json'), '--keys', file('keys.json')]
    expect(await client.ask(...argv)).toMatchObject({
      code: 0,
      answer: {
        holds: true,
        request: { covered: true, bytes: 'same' },
        results: [{ status_code: 202, candidate_id: expect.any(String) }],
        unsigned: ['gateway', 'sent_at'],
      },
    })
    const changed = async (change: (from: typeof receipt) => void) => {
      const copy = structuredClone(receipt)
      change(copy)
      await writeFile(file('receipt.json'), JSON.stringify(copy))
      return fail(...argv)
    }
    expect(
      await changed((one) => {
        one.answer.status = 200
      }),
    ).toEqual([2, 'receipt_invalid'])
    expect(
      await changed((one) => {
        one.answer.body = one.answer.body.replace('received', 'executed')
      }),
    ).toEqual([2, 'receipt_digest_differs'])
    expect(
      await changed((one) => {
        one.request.body += ' '
      }),
    ).toEqual([2, 'receipt_other_request'])
    await writeFile(file('receipt.json'), JSON.stringify(receipt))
    const withKeys = async (change: (key: Record<string, unknown>) => object[]) => {
      const { keys } = JSON.parse(await readFile(file('keys.json'), 'utf8'))
      await writeFile(file('changed-keys.json'), JSON.stringify({ keys: change(keys[0]) }))
      return fail(...argv.slice(0, -1), file('changed-keys.json'))
    }
    const yesterday = Math.floor(Date.now() / 1_000) - 86_400
    expect(await withKeys((key) => [{ ...key, exp: yesterday }])).toEqual([
      2,
      'receipt_key_expired',
    ])
    const x = '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo'
    const kid = 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k'
    expect(await withKeys((key) => [{ ...key, x, kid }])).toEqual([2, 'receipt_unknown_key'])
    await writeFile(file('no.json'), '{}')
    expect(await fail('receipt', 'verify', file('no.json'))).toEqual([2, 'invalid_receipt'])
    const plain = await client.ask('receipt', 'export', id)
    expect(plain.answer.request).not.toHaveProperty('body')
  })

  test('contract §9: one receipt for a batch proves each of its rows', async () => {
    const rows = [2, 3].map((at) => ({ identifier: questionOf(ready.dev, at).slug, outcome: 'p2' }))
    await writeFile(file('rows.json'), JSON.stringify(rows))
    const { code, answer } = await client.ask('batch', 'submit', file('rows.json'), '--yes')
    expect(code).toBe(0)
    for (const { journal_id, candidate } of answer.results as {
      journal_id: string
      candidate: { candidate_id: string }
    }[])
      expect(await client.ask('journal', 'show', journal_id, '--verify')).toMatchObject({
        code: 0,
        answer: {
          attempts: [{ proof: { holds: true, item: { candidate_id: candidate.candidate_id } } }],
        },
      })
    expect(await client.ask('journal', 'verify')).toMatchObject({ code: 0 })
  })

  test('contract §9, R7: with a pinned key of somebody else the answer counts, and is told to be unproven', async () => {
    const trust = JSON.parse(await readFile(client.env.PROPOSER_TRUST ?? '', 'utf8'))
    const x = '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo'
    trust.receipt_keys = { other: { kty: 'OKP', crv: 'Ed25519', x } }
    await writeFile(file('other-trust.json'), JSON.stringify(trust))
    const { slug } = questionOf(ready.dev, 4)
    const told = await client.ask(
      ...argvOf`submit ${slug} --outcome p2 --trust ${file('other-trust.json')}`,
    )
    expect([told.code, told.answer.outcome]).toEqual([0, 'accepted'])
    expect(told.ended.stderr).toContain('"receipt_unknown_key"')
    expect(await client.ask('submit', slug, '--outcome', 'p2')).toMatchObject({
      code: 0,
      answer: { outcome: 'replayed', journal_id: told.answer.journal_id },
    })
  })
})
