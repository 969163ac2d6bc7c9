import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import redis.clients.jedis.*;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.resps.ScanResult;

/** Jedis with its defaults: java -cp JARS Clients.java PORT. */
public class Clients {
  static byte[] row(int r) {
    ByteBuffer b = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < 4; i++) b.putInt(4 * r + i);
    return b.array();
  }

  static byte[] key(String text) { return text.getBytes(StandardCharsets.UTF_8); }

  static void check(boolean ok, String what) { if (!ok) throw new AssertionError(what); }

  public static void main(String[] args) {
    int port = Integer.parseInt(args[0]);
    try (JedisPooled client = new JedisPooled("127.0.0.1", port)) {
      check(Arrays.equals(client.get(key("users:7")), row(7)), "GET");
      check(client.get("users:1000") == null, "GET of no row");
      List<byte[]> all = client.mget(key("users:1"), key("users:x"), key("users:2"));
      check(Arrays.equals(all.get(0), row(1)) && all.get(1) == null && Arrays.equals(all.get(2), row(2)), "MGET");
      check(client.type("users:1").equals("string") && client.ttl("users:1") == -1 && client.strlen("users:1") == 16, "TYPE, TTL, STRLEN");
      int seen = 0;
      String cursor = "0";
      do {
        ScanResult<String> part = client.scan(cursor, new ScanParams().match("users:*").count(100));
        seen += part.getResult().size();
        cursor = part.getCursor();
      } while (!cursor.equals("0"));
      check(seen == 1000, "SCAN " + seen);
      try (Pipeline p = client.pipelined()) {
        Response<byte[]> one = p.get(key("users:1"));
        p.sync();
        check(Arrays.equals(one.get(), row(1)), "pipeline");
      }
      try (AbstractTransaction t = client.multi()) {
        Response<byte[]> one = t.get(key("users:1"));
        t.exec();
        check(Arrays.equals(one.get(), row(1)), "transaction");
      }
      try {
        client.get("items:1");
        check(false, "no error for a table that there is none of");
      } catch (JedisDataException e) {
        check(e.getMessage().contains("must be one of 1: users"), e.getMessage());
      }
    }
    try (Jedis client = new Jedis(new HostAndPort("127.0.0.1", port), DefaultJedisClientConfig.builder().user("admin").password("write").protocol(RedisProtocol.RESP3).build())) {
      check(client.info().contains("redis_version") && client.clientList().contains("user=admin"), "INFO, CLIENT LIST");
      check(client.configGet("maxclients").get("maxclients").equals("1000"), "CONFIG GET");
    }
    System.out.println("ok Jedis");
  }
}
