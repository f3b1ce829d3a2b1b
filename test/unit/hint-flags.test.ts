import { withFlags } from '#commands/terminal/verb'

test('contract §6: they repeat the flags that this command line was given, quoted where a shell needs it', () => {
  const argv = [
    'replay',
    '--gateway',
    'https://g.example',
    '--home=/my home',
    '--account',
    "o'neil",
    '--json',
  ]
  expect(withFlags('run `proposer replay a-1`, then wait', argv)).toBe(
    "run `proposer replay a-1 --gateway https://g.example --home '/my home' --account 'o'\\''neil'`, then wait",
  )
})

test('contract §6: what a command names itself stays, and another gateway than its own is not added', () => {
  const argv = ['replay', '--gateway', 'https://g.example', '--profile', 'main']
  expect(withFlags('`proposer replay a-1 --local <gateway.json>`', argv)).toBe(
    '`proposer replay a-1 --local <gateway.json> --profile main`',
  )
  expect(withFlags('`proposer replay a-1 --gateway https://h.example`', argv)).toBe(
    '`proposer replay a-1 --gateway https://h.example --profile main`',
  )
})

test('commands that ask neither a gateway nor a chain are named neither', () => {
  const argv = ['funds', '--rpc-url', 'https://n.example', '--local', 'g.json', '--home', 'h']
  expect(withFlags('`proposer account list`, `proposer devchain`', argv)).toBe(
    '`proposer account list --home h`, `proposer devchain --home h`',
  )
})

test('contract §6: text that is no command stays', () => {
  expect(withFlags('`proposer devchain`', ['x', '--rpc-url', 'http://h:1'])).toBe(
    '`proposer devchain`',
  )
  const argv = ['submit', 'q', '--local', 'gateway.json', '--home', 'h']
  expect(withFlags('see `proposer journal list`, or give `--outcome p1` to proposer', argv)).toBe(
    'see `proposer journal list --local gateway.json --home h`, or give `--outcome p1` to proposer',
  )
})

test("contract §6: a command of a gateway's owner is for the same gateway.json, which others take as --local", () => {
  const hint = 'run `proposer operator store init`, or `proposer serve`'
  const pasted =
    'run `proposer operator store init --config g.json`, or `proposer serve --config g.json`'
  expect(withFlags(hint, ['operator', 'gateways', '--config', 'g.json'])).toBe(pasted)
  expect(withFlags(hint, ['eligibility', '--local=g.json'])).toBe(pasted)
  expect(withFlags(hint, ['eligibility', '--gateway', 'https://g.example'])).toBe(hint)
  const argv = ['eligibility', '--local', 'g.json']
  for (const own of ['`proposer serve --config h.json`', '`proposer serve --dev`'])
    expect(withFlags(own, argv)).toBe(own)
  expect(withFlags('`proposer poll x`', ['serve', '--config', 'g.json'])).toBe('`proposer poll x`')
})

test('R5: a URL that may hold a credential is not repeated', () => {
  const argv = [
    'poll',
    '--rpc-url',
    'https://node.example/v2/secret',
    '--gateway',
    'https://g.example/',
  ]
  expect(withFlags('`proposer poll x`', argv)).toBe(
    '`proposer poll x --gateway https://g.example/ --rpc-url <url>`',
  )
})

test('contract §6: without such flags a hint is as it was; what stands behind -- is no flag', () => {
  expect(withFlags('`proposer poll x`', ['poll', 'x', '--json'])).toBe('`proposer poll x`')
  expect(withFlags('`proposer poll x`', ['poll', '--', '--home', 'h'])).toBe('`proposer poll x`')
})
