import java.io.File;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** One name node and one data node below a folder, until standard input ends; says on which port. */
public final class MiniHdfs {
    private MiniHdfs() {}

    public static void main(String[] args) throws IOException {
        Configuration conf = new Configuration();
        conf.setInt("dfs.replication", 1);
        try (MiniDFSCluster cluster =
                new MiniDFSCluster.Builder(conf, new File(args[0])).nameNodePort(0).numDataNodes(1).build()) {
            cluster.waitActive();
            System.out.println("ready " + cluster.getNameNodePort());
            while (System.in.read() >= 0) {
                // The parent process is still running.
            }
        }
        System.exit(0);
    }
}
