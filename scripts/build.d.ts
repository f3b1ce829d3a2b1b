/** Bundles src into dist/; the paths written, relative to dist/. `clean` removes what earlier builds left. */
export function bundle(options?: { clean?: boolean }): Promise<string[]>
