/** One sentence for each thing that a release lacks. */
export function lackingIn(manifest: object, changelog: string): readonly string[]
