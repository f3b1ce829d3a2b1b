/**
 * The client beside gateways that keep the spec and are not ours (contract §9): where the spec shows no format, none is insisted on.
 */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type AnyGateway, anyGateway } from '../support/any-gateway.js'

let world: AnyGateway
beforeEach(async () => {
  world = await anyGateway()
})
afterEach(() => world.close())

describe('contract §9: a slug may begin with 0x', () => {
  const slug = '0x-protocol-above-1'
  beforeEach(async () => {
    await world.close()
    world = await anyGateway(slug)
  })

  test('context, submit, status and reconcile take it', async () => {
    expect(JSON.parse((await world.ask(['context', slug, '--json'])).stdout).questions[0]).toMatchObject({ slug })
    const submitted = await world.ask(['submit', slug, '--outcome', 'p2', '--json'])
    expect(submitted.code).toBe(0)
    const id = JSON.parse(submitted.stdout).candidate_id
    expect((await world.ask(['status', id, '--question', slug])).code).toBe(0)
    expect((await world.ask(['reconcile', slug])).code).toBe(0)
    expect(JSON.parse((await world.ask(['journal', 'list', '--json'])).stdout).authorizations[0]).toMatchObject({ identifier: slug })
  })

  test('so do a batch, its context and a question id that lacks a digit is asked for as a slug', async () => {
    const rows = world.file('rows.ndjson', `${JSON.stringify({ identifier: slug, outcome: 'p2' })}\n`)
    expect((await world.ask(['batch', 'submit', rows, '--json'])).code).toBe(0)
    expect((await world.ask(['batch', 'context', world.file('ids', `${slug}\n`), '--json'])).code).toBe(0)
    const short = `0x${'a'.repeat(63)}`
    const { code, stderr } = await world.ask(['submit', short, '--outcome', 'p2', '--json'])
    // What it means is for the gateway to say; nothing is signed for it.
    expect([code, JSON.parse(stderr).error.code]).toEqual([3, 'question_not_found'])
  })
})
