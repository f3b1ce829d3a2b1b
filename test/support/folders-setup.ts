import { removeFolders } from './folders.js'

afterAll(removeFolders)
