/**
 * What an RPC node says in its own words is outside text: a provider may repeat the key of its URL,
 * or whose account is out of credit. It is quoted wherever it stands in a message, so that what
 * goes to everybody can leave it out, whoever put the message together (R5).
 */

/** Words of a node, marked as such. */
export const quoteWords = (words: string): string => `“${words.replace(/[“”]/g, '"')}”`

/**
 * A message for the public: without the words of any node, also where a cut took the end of the
 * quotation.
 */
export const withoutNodeWords = (message: string): string =>
  message.replace(/:? ?“[^”]*(?:”|$)/g, '')
