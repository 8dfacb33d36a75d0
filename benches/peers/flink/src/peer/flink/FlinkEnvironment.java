package peer.flink;

import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.TaskInfoImpl;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.fs.CloseableRegistry;
import org.apache.flink.core.fs.Path;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.runtime.execution.Environment;
import org.apache.flink.runtime.io.disk.iomanager.IOManagerAsync;
import org.apache.flink.runtime.memory.MemoryManager;
import org.apache.flink.runtime.memory.SharedResources;
import org.apache.flink.runtime.metrics.groups.UnregisteredMetricGroups;
import org.apache.flink.runtime.state.CheckpointableKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.KeyedStateBackendParametersImpl;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.LocalRecoveryConfig;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.TaskStateManager;
import org.apache.flink.runtime.state.changelog.ChangelogStateHandle;
import org.apache.flink.runtime.state.changelog.StateChangelogStorage;
import org.apache.flink.runtime.state.changelog.StateChangelogStorageLoader;
import org.apache.flink.runtime.state.filesystem.FsCheckpointStorageAccess;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;
import org.apache.flink.runtime.taskmanager.TaskManagerRuntimeInfo;
import org.apache.flink.state.changelog.ChangelogStateBackend;
import org.apache.flink.state.forst.ForStStateBackend;
import org.apache.flink.state.forst.sync.ForStSyncKeyedStateBackend;
import org.apache.flink.state.rocksdb.EmbeddedRocksDBStateBackend;
import org.apache.flink.state.rocksdb.RocksDBKeyedStateBackend;
import org.apache.flink.streaming.runtime.tasks.StreamTaskActionExecutor;
import org.apache.flink.streaming.runtime.tasks.mailbox.MailboxExecutorImpl;
import org.apache.flink.streaming.runtime.tasks.mailbox.TaskMailboxImpl;
import org.apache.flink.util.SimpleUserCodeClassLoader;

/**
 * The smallest task environment in which Flink's own state backends can be created through their
 * public entry points, without a job, a task or a cluster.
 */
final class FlinkEnvironment {
    final File root;
    final Configuration conf = new Configuration();
    final ExecutionConfig ec = new ExecutionConfig();
    final JobID job = new JobID();
    final ClassLoader cl = FlinkEnvironment.class.getClassLoader();
    final MailboxExecutorImpl mailbox =
            new MailboxExecutorImpl(
                    new TaskMailboxImpl(Thread.currentThread()), 0, StreamTaskActionExecutor.IMMEDIATE);
    final ExecutorService pool =
            Executors.newFixedThreadPool(
                    4,
                    r -> {
                        Thread t = new Thread(r, "env-pool");
                        t.setDaemon(true);
                        return t;
                    });
    final FsCheckpointStorageAccess storage;
    final MemoryManager memory;
    final SharedResources shared = new SharedResources();
    final IOManagerAsync io;
    StateChangelogStorage<?> changelog;
    int keyGroups;
    int opened;

    /** kind: heap | rocksdb | forst, with -changelog behind it for the changelog on top. */
    final String kind;

    final boolean changelogOn;

    private static final String CHANGELOG = "-changelog";

    /** Behind the kind: 512 MiB for block cache and write buffers together. */
    private static final String MANAGED = "-managed";

    FlinkEnvironment(String name) throws Exception {
        changelogOn = name.endsWith(CHANGELOG);
        String inner = changelogOn ? name.substring(0, name.length() - CHANGELOG.length()) : name;
        boolean managed = inner.endsWith(MANAGED);
        kind = managed ? inner.substring(0, inner.length() - MANAGED.length()) : inner;
        File base = new File(System.getProperty("peer.dir", "."));
        base.mkdirs();
        root = new File(base, "run");
        if (!root.mkdirs()) {
            throw new IllegalStateException("cannot make " + root);
        }
        File tmp = sub("tmp");
        conf.setString("state.backend.rocksdb.memory.managed", "false");
        conf.setString("state.backend.forst.memory.managed", "false");
        if (managed) {
            conf.setString("state.backend.rocksdb.memory.fixed-per-slot", "512mb");
        }
        conf.setString("execution.checkpointing.incremental", "true");
        conf.setString("state.backend.rocksdb.timer-service.factory", "ROCKSDB");
        conf.setString("state.backend.forst.timer-service.factory", "ForStDB");
        conf.setString("state.backend.forst.primary-dir", "local-dir");
        conf.setString("state.changelog.storage", "filesystem");
        conf.setString("state.changelog.dstl.dfs.base-path", sub("dstl").toURI().toString());
        conf.setString("dstl.dfs.base-path", sub("dstl").toURI().toString());
        conf.setString("state.changelog.periodic-materialize.enabled", "false");
        ec.configure(conf, cl);
        storage =
                new FsCheckpointStorageAccess(
                        new Path(sub("cp").toURI()), null, job, 20 * 1024, 20 * 1024);
        storage.initializeBaseLocationsForCheckpoint();
        memory = MemoryManager.create(64 * 1024L * 1024L, 32 * 1024);
        io = new IOManagerAsync(new String[] {tmp.getAbsolutePath()}, pool);
        if (changelogOn) {
            changelog =
                    StateChangelogStorageLoader.load(
                            job,
                            conf,
                            UnregisteredMetricGroups.createUnregisteredTaskManagerJobMetricGroup(),
                            LocalRecoveryConfig.BACKUP_AND_RECOVERY_DISABLED);
            if (changelog == null) {
                throw new IllegalStateException("no changelog storage");
            }
        }
    }

    File sub(String name) {
        File f = new File(root, name);
        f.mkdirs();
        return f;
    }

    private static <T> T proxy(Class<T> type, InvocationHandler h) {
        return type.cast(Proxy.newProxyInstance(FlinkEnvironment.class.getClassLoader(), new Class<?>[] {type}, h));
    }

    private static Object unexpected(Class<?> type, Method m) {
        switch (m.getName()) {
            case "hashCode":
                return 1;
            case "equals":
                return false;
            case "toString":
                return type.getSimpleName() + "-stub";
            default:
                throw new UnsupportedOperationException(type.getSimpleName() + "." + m.getName());
        }
    }

    Environment env() {
        TaskManagerRuntimeInfo tm =
                proxy(
                        TaskManagerRuntimeInfo.class,
                        (p, m, a) -> {
                            switch (m.getName()) {
                                case "getConfiguration":
                                    return conf;
                                case "getTmpDirectories":
                                    return new String[] {sub("tmp").getAbsolutePath()};
                                case "getTmpWorkingDirectory":
                                    return sub("tmp");
                                case "shouldExitJvmOnOutOfMemoryError":
                                    return false;
                                default:
                                    return unexpected(TaskManagerRuntimeInfo.class, m);
                            }
                        });
        TaskStateManager tsm =
                proxy(
                        TaskStateManager.class,
                        (p, m, a) -> {
                            switch (m.getName()) {
                                case "createLocalRecoveryConfig":
                                    return LocalRecoveryConfig.BACKUP_AND_RECOVERY_DISABLED;
                                case "getStateChangelogStorage":
                                    return changelog;
                                case "getStateChangelogStorageView":
                                    return StateChangelogStorageLoader.loadFromStateHandle(
                                            (Configuration) a[0], (ChangelogStateHandle) a[1]);
                                case "getFileMergingSnapshotManager":
                                    return null;
                                default:
                                    return unexpected(TaskStateManager.class, m);
                            }
                        });
        return proxy(
                Environment.class,
                (p, m, a) -> {
                    switch (m.getName()) {
                        case "getExecutionConfig":
                            return ec;
                        case "getJobID":
                            return job;
                        case "getTaskConfiguration":
                        case "getJobConfiguration":
                            return conf;
                        case "getTaskManagerInfo":
                            return tm;
                        case "getTaskStateManager":
                            return tsm;
                        case "getMetricGroup":
                            return UnregisteredMetricGroups.createUnregisteredTaskMetricGroup();
                        case "getTaskInfo":
                            return new TaskInfoImpl("peer", keyGroups, 0, 1, 0);
                        case "getIOManager":
                            return io;
                        case "getMemoryManager":
                            return memory;
                        case "getSharedResources":
                            return shared;
                        case "getUserCodeClassLoader":
                            return SimpleUserCodeClassLoader.create(cl);
                        case "getTaskKvStateRegistry":
                            return null;
                        case "getMainMailboxExecutor":
                            return mailbox;
                        case "getAsyncOperationsThreadPool":
                            return pool;
                        case "getCheckpointStorageAccess":
                            return storage;
                        case "failExternally":
                            ((Throwable) a[0]).printStackTrace();
                            return null;
                        default:
                            return unexpected(Environment.class, m);
                    }
                });
    }

    StateBackend backend() throws Exception {
        StateBackend b;
        switch (kind) {
            case "heap":
                b = new HashMapStateBackend().configure(conf, cl);
                break;
            case "rocksdb":
                b = new EmbeddedRocksDBStateBackend().configure(conf, cl);
                break;
            case "forst":
                b = new ForStStateBackend().configure(conf, cl);
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
        if (changelogOn) {
            Constructor<ChangelogStateBackend> c =
                    ChangelogStateBackend.class.getDeclaredConstructor(StateBackend.class);
            c.setAccessible(true);
            b = c.newInstance(b);
        }
        return b;
    }

    <K> KeyedStateBackendParametersImpl<K> params(
            TypeSerializer<K> ser, KeyGroupRange range, Collection<KeyedStateHandle> handles) {
        return new KeyedStateBackendParametersImpl<>(
                env(),
                job,
                // ForSt derives its folder from the operator, so two open backends need two names
                "op" + ++opened,
                ser,
                keyGroups,
                range,
                null,
                Ttl.CLOCK,
                new UnregisteredMetricsGroup(),
                (name, value) -> {},
                handles,
                new CloseableRegistry(),
                1.0);
    }

    <K> CheckpointableKeyedStateBackend<K> open(TypeSerializer<K> ser) throws Exception {
        return open(ser, new KeyGroupRange(0, keyGroups - 1), Collections.emptyList());
    }

    <K> CheckpointableKeyedStateBackend<K> open(
            TypeSerializer<K> ser, KeyGroupRange range, List<KeyedStateHandle> handles)
            throws Exception {
        return backend().createKeyedStateBackend(params(ser, range, handles));
    }

    /** Runs what other threads handed to the task thread, as a task's own loop does. */
    void mails() {
        while (mailbox.tryYield()) {}
    }

    static boolean compact(KeyedStateBackend<?> b, StateDescriptor<?, ?> d) throws Exception {
        if (b instanceof RocksDBKeyedStateBackend) {
            ((RocksDBKeyedStateBackend<?>) b).compactState(d);
            return true;
        }
        if (b instanceof ForStSyncKeyedStateBackend) {
            ((ForStSyncKeyedStateBackend<?>) b).compactState(d);
            return true;
        }
        return false;
    }

    void close() throws Exception {
        pool.shutdownNow();
        delete(root);
    }

    static void delete(File f) {
        File[] kids = f.listFiles();
        if (kids != null) {
            for (File k : kids) {
                delete(k);
            }
        }
        f.delete();
    }
}
