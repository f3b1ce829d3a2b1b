import { spawn } from 'node:child_process'
import { platform } from 'node:os'

/** Without a display an opener would show a text browser in the terminal or fail late. */
export function systemOpener(
  env: Readonly<Record<string, string | undefined>>,
  system: string = platform(),
) {
  if (system === 'darwin') return 'open'
  const display = (env.DISPLAY ?? '') !== '' || (env.WAYLAND_DISPLAY ?? '') !== ''
  return system !== 'win32' && display ? 'xdg-open' : undefined
}

/** What a browser needs to find its profile and its screen; no secret of ours is among it. */
const passedOn =
  /^(PATH|HOME|USER|LOGNAME|LANG|LC_\w+|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|XDG_\w+|DBUS_SESSION_BUS_ADDRESS|BROWSER|KDE_\w+|DESKTOP_SESSION|TMPDIR)$/

export function openInBrowser(
  opener: string,
  url: string,
  env: Readonly<Record<string, string | undefined>>,
) {
  const kept = Object.fromEntries(Object.entries(env).filter(([name]) => passedOn.test(name)))
  return new Promise((resolve) => {
    const child = spawn(opener, [url], { env: kept, stdio: 'ignore', detached: true })
    child.once('error', () => resolve(false))
    child.once('spawn', () => {
      child.unref()
      resolve(true)
    })
  })
}
