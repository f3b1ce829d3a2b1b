import { observed, observedListener, takeAnswerFaults } from './answers-seen.js'

vi.mock('#gateway/gateway', async (original) => {
  const real = await original<typeof import('#gateway/gateway')>()
  return {
    ...real,
    createGateway: (parts: Parameters<typeof real.createGateway>[0]) =>
      observed(real.createGateway(parts)),
  }
})

vi.mock('#io/serving/listener', async (original) => {
  const real = await original<typeof import('#io/serving/listener')>()
  return {
    ...real,
    listen: async (options: Parameters<typeof real.listen>[0]) =>
      observedListener(await real.listen(options)),
  }
})

async function expectDocumented(): Promise<void> {
  const faults = await takeAnswerFaults()
  if (faults.length > 0)
    throw new Error(`answers that /openapi.json does not describe:\n${faults.join('\n')}`)
}

afterEach(expectDocumented)
afterAll(expectDocumented)
