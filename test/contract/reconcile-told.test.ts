import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { run, writeTrust } from '#support/cli'
import { key, proposer } from '#support/desk'
import {
  ask,
  createFakeChain,
  createFakeClock,
  endow,
  type FakeChain,
  questionText,
  rivalProposes,
} from '#support/fake-chain'
import { fakeTrust } from '#support/fake-world'
import { temporaryFolder } from '#support/folders'
import { contextOnChain, happySteps, scriptedGateway } from '#support/scripted-gateway'

const other = `0x${'77'.repeat(20)}` as const

type Happens = (chain: FakeChain, question: `0x${string}`) => void
const cases: readonly (readonly [string, Happens, string])[] = [
  ['an open round', () => undefined, 'its round is requested'],
  [
    "another's proposal",
    (chain, question) => rivalProposes(chain, question, other, 10n ** 18n),
    `${other} proposed p2`,
  ],
  [
    'another answer',
    (chain, question) => rivalProposes(chain, question, proposer, 0n),
    `${proposer} proposed p1`,
  ],
  [
    'one of its owner that its signature did not make',
    (chain, question) => rivalProposes(chain, question, proposer, 10n ** 18n),
    'not by this authorization',
  ],
]

test.each(cases)(
  'contract §6: told as executed, and the chain shows %s',
  async (_what, happens, says) => {
    const home = temporaryFolder()
    const chain = createFakeChain()
    const text = questionText('Will it hold?')
    const question = ask(chain, text)
    endow(chain, proposer)
    chain.mine(3)
    writeFileSync(join(home, 'key'), `${key}\n`, { mode: 0o600 })
    writeTrust(home, fakeTrust)
    const gateway = scriptedGateway(contextOnChain(chain, text, question))
    gateway.steps = [happySteps[2] ?? {}]
    const env = {
      PROPOSER_KEY_FILE: join(home, 'key'),
      PROPOSER_RPC_URL: 'http://127.0.0.1:8545',
      PROPOSER_GATEWAY: gateway.url,
    }
    const go = async (...argv: string[]) => {
      const { code, stdout, stderr } = await run(home, [...argv, '--json'], {
        clock: createFakeClock(chain),
        ...{ chain, fetch: gateway.fetch, env },
      })
      expect([code, stderr]).toEqual([0, ''])
      return JSON.parse(stdout)
    }
    await go('submit', question, '--outcome', 'p2', '--wait')
    happens(chain, question)
    chain.mine(3)
    const [entry] = (await go('reconcile', question)).authorizations
    expect(entry).toMatchObject({
      journal: { state: 'closed' },
      position: null,
      next: { action: 'wait' },
    })
    expect(entry.next.text).toMatch(
      /the gateway says that it was executed, and the chain does not show it/,
    )
    expect(entry.next.text).toContain(says)
  },
)
