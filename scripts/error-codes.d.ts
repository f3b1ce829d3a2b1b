type Row = { readonly retryable?: boolean | undefined; readonly when: string }
export function withCodes(
  page: string,
  wireFailures: Readonly<Record<string, Row & { readonly status: number }>>,
  failures: Readonly<Record<string, Row & { readonly nextAction: string }>>,
): string
