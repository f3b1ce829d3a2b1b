/**
 * The JSON Schema of gateway.json for editors, from the schema that reads it. What depends on two
 * keys at once, or cannot be said in JSON Schema, only the reader refuses.
 */
export function configSchemaText(z, configFile) {
  const schema = z.toJSONSchema(configFile, { target: 'draft-7', io: 'input' })
  const { chain } = schema.properties
  const pins = chain.required.filter((key) => key !== 'rpc_urls')
  Object.assign(chain, {
    required: ['rpc_urls'],
    anyOf: [{ required: ['profile'] }, { required: pins }],
  })
  schema.not = { required: ['store', 'store_file'] }
  const { executor } = schema.properties
  const keys = ['key_file', 'account', 'signer', 'pkcs11']
  const pairs = keys.flatMap((one, at) => keys.slice(at + 1).map((other) => [one, other]))
  executor.not = { anyOf: pairs.map((required) => ({ required })) }
  return `${JSON.stringify({ title: 'gateway.json of proposer', ...schema }, null, 2)}\n`
}
