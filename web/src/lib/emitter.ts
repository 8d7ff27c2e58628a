/** Tells listeners that something changed; they look for themselves what. */
export class Emitter {
  private readonly listeners = new Set<() => void>();
  /** How often it has told: who begins to listen sees whether something happened since they last looked. */
  version = 0;

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  emit(): void {
    this.version++;
    for (const listener of [...this.listeners]) listener();
  }
}
