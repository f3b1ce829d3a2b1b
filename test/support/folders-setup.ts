import { afterAll } from 'vitest'
import { removeFolders } from './folders.js'

afterAll(removeFolders)
