/** docs/reference/library.md, made of the declarations in a folder. */
export function referencePage(folder: string): string
