internal import CLinux

extension EventLoop {
    /// Makes this loop run the jobs of no actor too, for a process whose only executor it is.
    ///
    /// The runtime resumes each continuation by such a job, which then goes on to its actor: by way of the thread pool
    /// that would be two changes of thread for each answer, and libdispatch wakes up once a second for ever to look after
    /// a pool that was used once. Call it before the first task starts.
    public static func takeGlobalJobs() {
        clinux_take_global_jobs()
    }
}

/// Called by the runtime on any thread, by way of the hook in CLinux.
@_cdecl("eventloop_enqueue_global_job")
func enqueueGlobalJob(_ job: UnsafeMutableRawPointer) {
    EventLoop.shared.add(unsafeBitCast(job, to: UnownedJob.self))
}
