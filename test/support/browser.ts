import { type Browser, chromium } from 'playwright-core'
import { pathOf } from './components.js'

/** Its start takes seconds: one for all tests of a file, each in a context of its own. */
export const openBrowser = (...more: readonly string[]): Promise<Browser> =>
  chromium.launch({
    executablePath: pathOf('Chromium'),
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      ...more,
    ],
  })
