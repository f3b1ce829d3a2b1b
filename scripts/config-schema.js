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
  schema.properties.executor.not = { required: ['key_file', 'account'] }
  return `${JSON.stringify({ title: 'gateway.json of proposer', ...schema }, null, 2)}\n`
}
