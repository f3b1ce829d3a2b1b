/** Bundles src into dist/ and writes the list of what is bundled beside it. */
export function bundle(): Promise<void>
