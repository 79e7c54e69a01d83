// Reads an AsyncAPI document on standard input and prints what the official parser says of it, as JSON.
import { readFileSync } from 'node:fs'
import { Parser } from '@asyncapi/parser'

const { document, diagnostics } = await new Parser().parse(readFileSync(0, 'utf8'))
console.log(JSON.stringify({ document: document !== undefined, diagnostics }))
