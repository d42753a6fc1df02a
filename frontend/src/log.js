// The log viewer.
export function open() {}
