/**
 * The operator's page and the page on which a browser wallet is asked to sign (contract §9), as
 * files: document, style and script from their own listener, and nothing from anywhere else.
 */
import adminHtml from './admin.html?raw'
import adminScript from './admin.js?raw'
import style from './page.css?raw'
import walletHtml from './wallet.html?raw'
import walletScript from './wallet.js?raw'

/** No inline script or style, no frame around it, no form, no other origin (contract §6). */
const headers = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
} as const

interface PageFile {
  readonly body: string
  readonly headers: Readonly<Record<string, string>>
}

const file = (type: 'html' | 'css' | 'javascript', body: string): PageFile => ({
  body,
  headers: { ...headers, 'content-type': `text/${type}; charset=utf-8` },
})

/** By the path that is asked for. */
export const pageFiles: Readonly<Record<string, PageFile>> = {
  '/': file('html', adminHtml),
  '/page.css': file('css', style),
  '/page.js': file('javascript', adminScript),
}

/** By name, relative to the page's own path. */
export const walletPageFiles: Readonly<Record<string, PageFile>> = {
  '': file('html', walletHtml),
  'page.css': file('css', style),
  'page.js': file('javascript', walletScript),
}
