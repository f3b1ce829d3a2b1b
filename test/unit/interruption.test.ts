import { expect, test } from 'vitest'
import { ignoresHangUp } from '../../src/core/io/interruption.js'

const status = (mask: string) => `Name:\tsh\nSigBlk:\t0000000000000001\nSigIgn:\t${mask}\nSigCgt:\t0000000000000001\n`

test.each([
  ['nohup in front of it, as bash and zsh tell', { _: '/usr/bin/nohup' }, status('0000000000000000'), true],
  ['a shell that ignores it', { _: '/usr/bin/node' }, status('0000000000001001'), true],
  ['a shell that ignores other signals', { _: '/usr/bin/node' }, status('0000000000001002'), false],
  ['a system without /proc', {}, '', false],
  ['a program whose name ends so', { _: '/opt/notnohup' }, '', false],
] as const)('R26: whether SIGHUP was ignored at the start: %s', (_name, env, parent, expected) => {
  expect(ignoresHangUp(env, parent)).toBe(expected)
})
