export const programVersion = typeof PROPOSER_VERSION === 'string' ? PROPOSER_VERSION : '0.0.0'
