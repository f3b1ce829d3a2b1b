import { ignoresHangUp } from '#io/interruption'

const status = (mask: string) =>
  `Name:\tsh\nSigBlk:\t0000000000000001\nSigIgn:\t${mask}\nSigCgt:\t0000000000000001\n`
const stdin = (path: string, flags: string) => ({
  path,
  info: `pos:\t0\nflags:\t${flags}\nmnt_id:\t24\n`,
})
const terminal = stdin('/dev/pts/0', '0100002')

test.each([
  [
    'nohup in front of it, as bash and zsh tell',
    { _: '/usr/bin/nohup' },
    status('0000000000000000'),
    true,
  ],
  ['a shell that ignores it', { _: '/usr/bin/node' }, status('0000000000001001'), true],
  ['a shell that ignores other signals', { _: '/usr/bin/node' }, status('0000000000001002'), false],
  ['a system without /proc', {}, '', false],
  ['a program whose name ends so', { _: '/opt/notnohup' }, '', false],
  [
    'nohup put the null device in place of the terminal',
    {},
    '',
    true,
    stdin('/dev/null', '02100001'),
  ],
  ['a service whose stdin is the null device', {}, '', false, stdin('/dev/null', '02100000')],
  ['a process that a program started without stdin', {}, '', false, stdin('/dev/null', '0100002')],
  ['a file that is open for writing alone', {}, '', false, stdin('/tmp/file', '0100001')],
] as const)(
  'R26: whether SIGHUP was ignored at the start: %s',
  (_name, env, parent, expected, input = terminal) => {
    expect(ignoresHangUp(env, parent, input)).toBe(expected)
  },
)
