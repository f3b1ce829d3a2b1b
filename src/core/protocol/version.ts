/** The version in package.json; a run from the sources has none put in. */
export const programVersion = typeof PROPOSER_VERSION === 'string' ? PROPOSER_VERSION : '0.0.0'
