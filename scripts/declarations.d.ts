/** Writes the library's declarations below a folder, without what only our repository explains. */
export function declarations(folder: string): void
