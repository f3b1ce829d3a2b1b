/**
 * The operator's page and the page on which a browser wallet is asked to sign (contract §9), as
 * files: document, style and scripts from their own listener, and nothing from anywhere else.
 */
import adminBody from './admin.html?raw'
import adminScript from './admin.js?raw'
import elements from './elements.js?raw'
import style from './page.css?raw'
import walletBody from './wallet.html?raw'
import walletScript from './wallet.js?raw'

/** No inline script or style, no frame around it, no form, no other origin (contract §6). */
const headers = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
} as const

const file = (type: 'html' | 'css' | 'javascript', body: string) => ({
  body,
  headers: { ...headers, 'content-type': `text/${type}; charset=utf-8` },
})

const head = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="stylesheet" href="page.css">
<script type="module" src="page.js"></script>
`

/** By name, relative to the page's own path. */
const page = (body: string, script: string): Readonly<Record<string, ReturnType<typeof file>>> => ({
  '': file('html', head + body),
  'page.css': file('css', style),
  'page.js': file('javascript', script),
  'elements.js': file('javascript', elements),
})
export const adminPage = page(adminBody, adminScript)
export const walletPage = page(walletBody, walletScript)
