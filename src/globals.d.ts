/** The version in package.json, put in by the build. */
declare const PROPOSER_VERSION: string

declare module '*?raw' {
  const text: string
  export default text
}
