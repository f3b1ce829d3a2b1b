/** The version in package.json, put in by the build. */
declare const PROPOSER_VERSION: string

declare module '*?raw' {
  const text: string
  export default text
}

/** Of undici by path what is used: its index loads four times as much. */
declare module 'undici/lib/dispatcher/agent.js' {
  export { Agent as default } from 'undici'
}
declare module 'undici/lib/dispatcher/pool.js' {
  export { Pool as default } from 'undici'
}
declare module 'undici/lib/core/connect.js' {
  export { buildConnector as default } from 'undici'
}
declare module 'undici/lib/api/api-request.js' {
  import type { Dispatcher } from 'undici'
  export default function (
    this: Dispatcher,
    options: Dispatcher.RequestOptions,
  ): Promise<Dispatcher.ResponseData>
}
declare module 'undici/lib/web/fetch/index.js' {
  export { fetch } from 'undici'
}
