/**
 * The operator's page as files: one document, one style sheet, one script, all from this listener
 * and nothing from anywhere else. Strings, so that a bundle needs no folder beside it.
 */
import { listsScript } from './admin-page-lists.js'
import { liveScript } from './admin-page-live.js'
import { pageMarkup } from './admin-page-markup.js'
import { figuresScript } from './admin-page-script.js'
import { pageStyle } from './admin-page-style.js'

/** No inline script or style, no frame around it, no form, no other origin (contract §6). */
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/** Of every file of a page of ours. */
export const pageHeaders = {
  'content-security-policy': policy,
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
} as const

export interface PageFile {
  readonly body: string
  readonly headers: Readonly<Record<string, string>>
}

/** By the path that is asked for. */
export const pageFiles: Readonly<Record<string, PageFile>> = {
  '/': {
    body: pageMarkup,
    headers: { ...pageHeaders, 'content-type': 'text/html; charset=utf-8' },
  },
  '/page.css': {
    body: pageStyle,
    headers: { ...pageHeaders, 'content-type': 'text/css; charset=utf-8' },
  },
  '/page.js': {
    body: figuresScript + listsScript + liveScript,
    headers: { ...pageHeaders, 'content-type': 'text/javascript; charset=utf-8' },
  },
}
