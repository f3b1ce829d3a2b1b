/** A Chromium of its own profile, where the machine has one. */
import { existsSync } from 'node:fs'
import { type BrowserContext, chromium } from 'playwright-core'

const places = ['/usr/bin/chromium', '/usr/bin/google-chrome']
const executablePath = places.find((path) => existsSync(path))

/** Why tests that need a browser are left out; `undefined`: there is one. */
export const noBrowser =
  executablePath === undefined ? `skipped: no Chromium at ${places.join(', ')}` : undefined

/** CI_REQUIRE_ALL=1: what a test needs and is not there is an error, not a skip. */
if (noBrowser !== undefined && process.env.CI_REQUIRE_ALL === '1') throw new Error(noBrowser)

/** Opens it with its profile in `folder`, which is made. */
export const openBrowser = (
  folder: string,
  more: readonly string[] = [],
): Promise<BrowserContext> =>
  chromium.launchPersistentContext(folder, {
    executablePath: executablePath ?? '',
    headless: true,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      ...more,
    ],
  })
