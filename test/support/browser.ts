import { type BrowserContext, chromium } from 'playwright-core'
import { pathOf } from './components.js'

export const openBrowser = (
  folder: string,
  more: readonly string[] = [],
): Promise<BrowserContext> =>
  chromium.launchPersistentContext(folder, {
    executablePath: pathOf('Chromium'),
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
