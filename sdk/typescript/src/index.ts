// The package `pinfold`: a client of the daemon. Owns nothing that must survive this program.

export { Admin } from "./admin.js";
export { type Command, OwnerClient, Pinfold, type PinfoldOptions, type RunResult } from "./client.js";
export * from "./errors.js";
export { Process } from "./process.js";
export type * from "./types.js";
